-- Records which slots a Cluster's master was seen to have, in one of them. It lets nobody vote.
-- KEYS  deployment record
-- ARGV  run, replication id, new deployment record, the one looked at or '', how often all keys
--       were deleted then and the statistics of that reset
-- Answers 1; 0 when the server is not that run or not a master any more; -1 when it is to be
-- looked at again.
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
if not string.find(info, 'run_id:' .. ARGV[1], 1, true)
  or not string.find(info, 'master_replid:' .. ARGV[2], 1, true)
  or not string.find(info, 'role:master', 1, true) then
  return 0
end
local stats = redis.call('INFO', 'commandstats')
local all, db = string.match(stats, 'cmdstat_flushall:([^,\r]*)'), string.match(stats, 'cmdstat_flushdb:([^,\r]*)')
local reset = string.match(stats, 'cmdstat_config|resetstat:([^,\r]*)')
db = (db or '') .. (reset and '+' .. reset or '')
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[4] or (all or '') .. '+' .. (db or '') ~= ARGV[5] then
  return -1
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
