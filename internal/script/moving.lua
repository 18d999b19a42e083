-- isMoving reports whether the key's Cluster slot is being moved away: a script may then not read a key of the slot that is
-- not here. Some of the slot's keys may be at the next master.
local function isMoving(key)
  return type(redis.pcall('PTTL', key .. ':none')) == 'table'
end
