-- Writes, so that a WAIT behind it on the same connection is for all that this server has executed
-- up to here; and answers which run it is, and its replication id.
-- KEYS  barrier
-- ARGV  TTL in ms
-- PEXPIRE takes no memory: a server that is out of it still extends locks.
if redis.call('PEXPIRE', KEYS[1], ARGV[1]) == 0 then
  redis.call('PSETEX', KEYS[1], ARGV[1], '')
end
return (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '') .. ' '
  .. (string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or '')
