-- Gives the key back to a reader whose quorum stands, on a node that lost it; but not where a later
-- holder has been: then the counter, or that of the readers' key, is past our token.
-- KEYS  key, counter, admission, readers
-- ARGV  as of the repair step
-- Answers 1 or 0; -1 when not admitted.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local time = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[6], time) then
  return -1
end
local under, token = opened(seen[1]), tonumber(ARGV[4])
-- rule: repair-only-empty
if (under or tonumber(seen[2]) or 0) > token then
  return 0
end
local at = time[1] * 1000 + math.floor(time[2] / 1000)
if under then
  at = instant(KEYS[1], KEYS[4], at)
else
  if not redis.call('SET', KEYS[1], 'redlatch:shared ' .. ARGV[4], 'PX', ARGV[3], 'NX') then
    return 0
  end
  redis.call('DEL', KEYS[4])
end
share(KEYS[1], KEYS[4], ARGV[2], tonumber(ARGV[3]), at)
raise(KEYS[2], seen[2], ARGV[4], ARGV[5])
return 1
