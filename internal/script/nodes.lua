-- Reads what the server that has the key's slot knows of its Cluster. Changes nothing.
-- KEYS  any of the slot
-- Answers its run, and the nodes.
local info = redis.call('INFO', 'server')
return {string.match(info, 'run_id:(%w+)') or '', redis.call('CLUSTER', 'NODES')}
