-- moveError returns why a script may not read a key of the key's Cluster slot that is not here, or nil: while the slot is being moved
-- away, some of its keys may be at the next master. It also returns that the user may not read one.
local function moveError(key)
  local answer = redis.pcall('PTTL', key .. ':none')
  return type(answer) == 'table' and answer or nil
end
