-- Writes into an admission key that says nothing what no other client writes, so that it shows if all keys
-- are deleted before the node is admitted. It lets nobody vote.
-- KEYS  admission
-- ARGV  the mark, TTL in ms
if said(KEYS[1]) == '' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
