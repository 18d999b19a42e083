-- isMoving reports whether the Cluster slot of the keys is being moved away. Some of its keys may be at the next
-- master then. A step all of whose keys are here is executed all the same, and no other is.
local function isMoving()
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) == -2 then
      return false
    end
  end
  return string.find(redis.call('CLUSTER', 'NODES'), '[' .. redis.call('CLUSTER', 'KEYSLOT', KEYS[1]) .. '->-', 1, true)
end
