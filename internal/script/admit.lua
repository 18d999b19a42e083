-- Lets the node vote, if it is still the run that was looked at.
--
-- Running this step by EVAL is what loads the voting script: admission and load
-- are one command, so no restart can come between them. When the run is another
-- one, an admission that a snapshot brought back is taken away again.
-- KEYS  admission, deployment record, quarantine
-- ARGV  step, run id, new deployment record
-- Answers 1, or 0 when the server is not that run or not a master.
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local run = string.match(info, 'run_id:(%w+)') or ''
if not FENCED or run == ARGV[2] and string.find(info, 'role:master', 1, true) then
  redis.call('SET', KEYS[1], AGREEMENT)
  redis.call('SET', KEYS[2], ARGV[3])
  redis.call('DEL', KEYS[3])
  return 1
end
local record = redis.call('GET', KEYS[2])
if run == '' or not (record and string.find(record, run, 1, true)) then
  redis.call('DEL', KEYS[1])
end
return 0
