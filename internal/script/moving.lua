-- isMoving returns an error if the key's Cluster slot is being moved away, where a script may not read a key of the slot that
-- is not here; or if the user may not read it. Some of the slot's keys may be at the next master then.
local function isMoving(key)
  local answer = redis.pcall('PTTL', key .. ':none')
  return type(answer) == 'table' and answer
end
