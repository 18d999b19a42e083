-- Gives several keys back to a holder whose quorum stands, on a node that lost some of them; but
-- not where one is another's. A counter may be past our token, as in the repair step: it stays.
-- KEYS  of each: key, counter, next; then the admission
-- ARGV  as of the repair step
-- Answers 1 or 0; -1 when not admitted.
local seen = redis.call('MGET', unpack(KEYS))
-- rule: admission-read
if not admitted(KEYS[#KEYS], seen[#KEYS], ARGV[6], redis.call('TIME')) then
  return -1
end
for i = 1, #KEYS - 3, 3 do
  -- rule: repair-only-empty
  if seen[i] and seen[i] ~= ARGV[2] then
    return 0
  end
end
for i = 1, #KEYS - 3, 3 do
  if seen[i] then
    prolong(KEYS[i], ARGV[3], ARGV[5])
  elseif not redis.call('SET', KEYS[i], ARGV[2], 'PX', ARGV[3], 'NX') then
    return 0 -- of another type; the holder's release deletes what was given back
  end
  raise(KEYS[i + 1], seen[i + 1], ARGV[4], ARGV[5])
end
return 1
