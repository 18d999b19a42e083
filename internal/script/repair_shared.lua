-- Gives the key back to a reader whose quorum stands, on a node that lost it. It joins readers who are there.
-- Otherwise the counter may be past our token, by an attempt of another that this node voted for meanwhile and that
-- has failed. Then the key is opened under a larger one, as by a first reader: those who join are granted under
-- it, and a writer may have been granted under the one that is there.
-- KEYS  key, counter, admission, readers
-- ARGV  as of the repair step
-- Answers 1 or 0; -1 when not admitted.
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local time = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[6], time) then
  return -1
end
local under, token, counter = opened(seen[1]), ARGV[4], tonumber(seen[2]) or 0
local at = time[1] * 1000 + math.floor(time[2] / 1000)
if under then
  at = instant(KEYS[1], KEYS[4], at)
else
  if counter > tonumber(token) then
    -- rule: counter-raised
    token = string.format('%.0f', counter + 1)
  end
  -- rule: repair-only-empty
  if counter >= COUNTERS or not redis.call('SET', KEYS[1], 'redlatch:shared ' .. token, 'PX', ARGV[3], 'NX') then
    return 0
  end
  redis.call('DEL', KEYS[4])
end
share(KEYS[1], KEYS[4], ARGV[2], tonumber(ARGV[3]), at)
raise(KEYS[2], seen[2], token, ARGV[5])
return 1
