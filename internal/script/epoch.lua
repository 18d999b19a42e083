-- inEpoch reports whether the server, a Cluster's master, has this configuration epoch still: a slot that
-- was away, and may have come back without its keys, came with a new one.
local function inEpoch(epoch)
  return string.find(redis.call('CLUSTER', 'NODES'), 'myself%S* %S+ %S+ %S+ ' .. epoch .. ' ')
end
