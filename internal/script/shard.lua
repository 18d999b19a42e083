-- Records which slots a Cluster's master was seen to have, in one of them. It lets nobody vote.
-- KEYS  deployment record
-- ARGV  run, replication id, new deployment record, the one looked at or '', how often all keys
--       were deleted then and the statistics of that reset, the second of that look
-- Answers 1; 0 when the server is not that run or not a master any more; -1 when it is to be
-- looked at again.
if not isStill(ARGV[1], ARGV[2]) then
  return 0
end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[4] or flushes() ~= ARGV[5] then
  return -1
end
-- What the look found first is known from now on: locks may have been granted, and forgotten, since then.
local record = string.gsub(ARGV[3], '"since":' .. ARGV[6], '"since":' .. redis.call('TIME')[1])
redis.call('SET', KEYS[1], record)
return 1
