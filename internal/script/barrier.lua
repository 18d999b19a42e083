-- Writes, so that a WAIT behind it on the same connection is for all that this server has executed
-- up to here; and answers which run it is, and its replication id.
-- KEYS  barrier
-- ARGV  TTL in ms
redis.call('PSETEX', KEYS[1], ARGV[1], '')
return (string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '') .. ' '
  .. (string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or '')
