-- Prolongs several keys if all are this holder's, and never shortens one.
-- KEYS  of each: key, counter, next; then the admission
-- ARGV  as of the extend step
-- Answers 1; when one is another's {holder, remaining ms} of the first that is; 0 when one is gone;
-- -1 when not admitted.
local seen = redis.call('MGET', unpack(KEYS))
-- rule: admission-read
if not admitted(KEYS[#KEYS], seen[#KEYS], ARGV[6], redis.call('TIME')) then
  return -1
end
local gone = false
for i = 1, #KEYS - 3, 3 do
  if seen[i] and seen[i] ~= ARGV[2] then
    return {string.sub(seen[i], 1, SHOWN), redis.call('PTTL', KEYS[i])}
  end
  gone = gone or not seen[i]
end
-- rule: extend-never-creates
-- rule: all-or-none
if gone then
  return 0
end
for i = 1, #KEYS - 3, 3 do
  prolong(KEYS[i], ARGV[3], ARGV[5])
  raise(KEYS[i + 1], seen[i + 1], ARGV[4], ARGV[5])
end
return 1
