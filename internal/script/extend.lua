-- Prolongs the key if it is this holder's. Never shortens it: a round that
-- misses its quorum must not take time from a validity that still runs.
-- KEYS  key, counter, admission
-- ARGV  step, holder id, TTL in ms, token, counter TTL in ms, the admission expected
-- Answers 1; {holder, remaining ms} when another's; 0 when there is none; -1 when not admitted.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[6], redis.call('TIME')) then
  return -1
end
-- rule: extend-never-creates
if seen[1] ~= ARGV[2] then
  return seen[1] and {string.sub(seen[1], 1, SHOWN), redis.call('PTTL', KEYS[1])} or 0
end
prolong(KEYS[1], ARGV[3], ARGV[5])
if seen[2] ~= ARGV[4] and (tonumber(seen[2]) or 0) < tonumber(ARGV[4]) then
  redis.call('PSETEX', KEYS[2], ARGV[5], ARGV[4])
end
return 1
