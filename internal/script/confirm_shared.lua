-- Stores a reader's token on a node that granted under a smaller counter. Being among the readers
-- does not prove that it was so without a break, when a message is executed twice. That readers
-- have had the key since before the grant does: no writer came between.
-- KEYS  key, counter, readers
-- ARGV  as of the confirm step
-- Answers 1 or 0.
local seen = redis.call('MGET', KEYS[1], KEYS[2])
local under = opened(seen[1])
local time = redis.call('TIME')
-- rule: confirm-same-readers
if not under or under > tonumber(ARGV[3])
  or ends(KEYS[3], ARGV[2]) <= instant(KEYS[1], KEYS[3], time[1] * 1000 + math.floor(time[2] / 1000)) then
  return 0
end
-- rule: token-stored
raise(KEYS[2], seen[2], ARGV[4], ARGV[5])
return 1
