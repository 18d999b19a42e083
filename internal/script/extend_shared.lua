-- Prolongs a reader's hold of the key, and never shortens it.
-- KEYS  key, counter, admission, readers
-- ARGV  as of the extend step
-- Answers 1; {holder, remaining ms} when a writer has the key; 0 when this reader does not; -1
-- when not admitted.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local time = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[6], time) then
  return -1
end
if not opened(seen[1]) then
  return seen[1] and {string.sub(seen[1], 1, SHOWN), redis.call('PTTL', KEYS[1])} or 0
end
-- rule: extend-never-creates
-- rule: own-expiry
local at = instant(KEYS[1], KEYS[4], time[1] * 1000 + math.floor(time[2] / 1000))
if ends(KEYS[4], ARGV[2]) <= at then
  return 0
end
-- This takes no memory, and a server that is out of memory lets a step that has written go on.
redis.call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
share(KEYS[1], KEYS[4], ARGV[2], tonumber(ARGV[3]), at)
raise(KEYS[2], seen[2], ARGV[4], ARGV[5])
return 1
