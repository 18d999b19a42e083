-- Lets the node vote, if it is still the server that was looked at.
--
-- Running this step by EVAL loads the voting script: admission and load are one command, so no
-- restart can come between them. Nor may keys have been deleted, or the record or the quarantine been
-- written, or a Cluster's slot been away, since the server was looked at.
-- KEYS  admission; where the node is no Cluster: deployment record, quarantine
-- ARGV  step, admission (agreement, run, replication id), new deployment record, the one
--       looked at or '', how often all keys were deleted then and the statistics of that reset, the
--       quarantine looked at or '', what the admission key said then, but for its time; in a Cluster: the
--       master's configuration epoch; elsewhere, where the quarantine is off: 'off'
-- Answers 1; 0 when the server is not that run or not a master; -1 when it is to be looked
-- at again; -2 when the slot is being moved.
if not isStill(string.sub(ARGV[2], -81, -42), string.sub(ARGV[2], -40)) then
  return 0
end
-- rule: admission-compared
if KEYS[2] and ((redis.call('GET', KEYS[2]) or '') ~= ARGV[4] or (redis.call('GET', KEYS[3]) or '') ~= ARGV[6])
  or flushes() ~= ARGV[5] or said(KEYS[1]) ~= ARGV[7] or not KEYS[2] and not inEpoch(ARGV[8]) then
  return -1
end
-- rule: not-renewed-amid-a-move
local failed = not KEYS[2] and moveError(KEYS[1])
if failed then
  return string.find(failed.err, 'non local key', 1, true) and -2 or failed
end
local now = redis.call('TIME')
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. string.format('%016.0f', now[1] * 1000000 + now[2]))
if KEYS[2] then
  redis.call('SET', KEYS[2], ARGV[3])
  -- rule: quarantine-not-shortened
  if not ARGV[8] then -- else the rest of a quarantine counts when it is switched on again
    redis.call('DEL', KEYS[3])
  end
end
return 1
