-- Keeps the node out until its quarantine is over and, if given one, stores a new record. It lets
-- nobody vote.
--
-- The quarantine has no TTL: its reason can be seen for as long as the server runs, so without it
-- the quarantine would begin anew for a client that comes later. The admission deletes it. It begins
-- now, not at the look, which may be long past: locks may have been granted, and forgotten, since then.
-- KEYS  admission, deployment record, quarantine
-- ARGV  run, replication id, the quarantine, the deployment record and the quarantine looked at,
--       or '' for none; then, if it is to be replaced, the new deployment record
-- Answers 1; 0 when the server is not that run or not a master any more; -1 when it is to be looked at again,
-- because somebody was quicker.
if not isStill(ARGV[1], ARGV[2]) then
  return 0
end
local seen = redis.call('MGET', KEYS[2], KEYS[3])
if (seen[1] or '') ~= ARGV[4] or (seen[2] or '') ~= ARGV[5] then
  return -1
end
if ARGV[6] then
  redis.call('SET', KEYS[2], ARGV[6])
end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[3], (string.gsub(ARGV[3], '%d+ (%d+)$', redis.call('TIME')[1] .. ' %1')))
return 1
