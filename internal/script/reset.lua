-- Gives the node to another set of nodes, or to another longest TTL. It votes
-- for nobody until the quarantine is over: locks of before may be held still.
-- KEYS  admission, deployment record, quarantine
-- ARGV  run id, new deployment record, new quarantine, its TTL in seconds
-- Answers 1, or 0 when the server is not that run.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
if run ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[4])
return 1
