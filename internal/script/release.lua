-- Deletes the record if it is this holder's. Safe on any node at any time.
-- KEYS  record, counter
-- ARGV  holder id, token to store if larger or 0, counter TTL in ms
-- Answers 1; {holder, remaining ms} when another's; 0 when there is none.
local seen = redis.call('GET', KEYS[1])
if seen ~= ARGV[1] then
  return seen and {seen, redis.call('PTTL', KEYS[1])} or 0
end
if ARGV[2] ~= '0' and (tonumber(redis.call('GET', KEYS[2])) or 0) < tonumber(ARGV[2]) then
  redis.call('PSETEX', KEYS[2], ARGV[3], ARGV[2])
end
redis.call('DEL', KEYS[1])
return 1
