-- Records which slots a Cluster's master was seen to have, in one of them. It lets nobody vote.
-- KEYS  deployment record
-- ARGV  run, replication id, new deployment record, the one looked at or '', how often all keys
--       were deleted then and the statistics of that reset
-- Answers 1; 0 when the server is not that run or not a master any more; -1 when it is to be
-- looked at again.
if not isStill(ARGV[1], ARGV[2]) then
  return 0
end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[4] or flushes() ~= ARGV[5] then
  return -1
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
