-- Writes into an admission key that says nothing what no other client writes, so that it shows if all keys
-- are deleted before the node is admitted; or into one that is not to be believed any more. It lets nobody vote.
-- KEYS  admission
-- ARGV  the mark, TTL in ms, what the admission key said, but for its time
if said(KEYS[1]) == ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
