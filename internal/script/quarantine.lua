-- Keeps the node out until its quarantine is over and, if given one, stores a new record. It lets
-- nobody vote.
-- KEYS  admission, deployment record, quarantine
-- ARGV  run, replication id, the quarantine, its TTL in seconds; then, to begin it only if nobody
--       was quicker: the deployment record and the quarantine looked at, or '' for none; or, to
--       begin it in any case: '*', new deployment record
-- Answers 1; 0 when the server is not that run any more; -1 when it is to be looked at again.
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
if not string.find(info, 'run_id:' .. ARGV[1], 1, true) or not string.find(info, 'master_replid:' .. ARGV[2], 1, true) then
  return 0
end
if ARGV[5] == '*' then
  redis.call('SET', KEYS[2], ARGV[6])
else
  local seen = redis.call('MGET', KEYS[2], KEYS[3])
  if (seen[1] or '') ~= ARGV[5] or (seen[2] or '') ~= ARGV[6] then
    return -1
  end
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[4])
return 1
