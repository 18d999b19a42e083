-- Gives the key back to a holder whose quorum stands, on a node that lost it. The counter may be past our token,
-- by an attempt of another that this node voted for meanwhile and that has failed: it stays.
-- KEYS  key, counter, admission
-- ARGV  step, holder id, TTL in ms, token, counter TTL in ms, the admission expected
-- Answers 1 or 0; -1 when not admitted.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[6], redis.call('TIME')) then
  return -1
end
-- rule: repair-only-empty
if seen[1] then
  return seen[1] == ARGV[2] and 1 or 0
end
if not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'NX') then
  return 0
end
raise(KEYS[2], seen[2], ARGV[4], ARGV[5])
return 1
