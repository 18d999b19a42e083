-- Deletes the record if it is this holder's. Safe on any node at any time.
-- KEYS  record, counter
-- ARGV  holder id, token or 0, counter TTL in ms
-- Answers 1; {holder, remaining ms} when another's; 0 when there is none.
local seen = redis.call('MGET', KEYS[1], KEYS[2])
if seen[1] ~= ARGV[1] then
  return seen[1] and {seen[1], redis.call('PTTL', KEYS[1])} or 0
end
if seen[2] ~= ARGV[2] and (tonumber(seen[2]) or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
redis.call('DEL', KEYS[1])
return 1
