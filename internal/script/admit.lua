-- Lets the node vote, if it is still the run that was looked at.
--
-- Running this step by EVAL is what loads the voting script: admission and load
-- are one command, so no restart can come between them. When the run is another
-- one, an admission that a snapshot brought back is taken away again. Nor may its keys have
-- been deleted, or the record been written, since it was looked at.
-- KEYS  admission, deployment record, quarantine
-- ARGV  step, run id, new deployment record, the one looked at or '', how often all keys were
--       deleted then
-- Answers 1; 0 when the server is not that run or not a master; -1 when it is to be looked
-- at again.
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local run = string.match(info, 'run_id:(%w+)') or ''
local record = redis.call('GET', KEYS[2]) or ''
if FENCED and run == ARGV[2] then
  local stats = redis.call('INFO', 'commandstats')
  local all, db = string.match(stats, 'cmdstat_flushall:([^,\r]*)'), string.match(stats, 'cmdstat_flushdb:([^,\r]*)')
  if record ~= ARGV[4] or (all or '') .. '+' .. (db or '') ~= ARGV[5] then
    return -1
  end
end
if not FENCED or run == ARGV[2] and string.find(info, 'role:master', 1, true) then
  redis.call('SET', KEYS[1], AGREEMENT)
  redis.call('SET', KEYS[2], ARGV[3])
  redis.call('DEL', KEYS[3])
  return 1
end
if run == '' or not string.find(record, run, 1, true) then
  redis.call('DEL', KEYS[1])
end
return 0
