-- publish sends a waiter the message that it is woken up, and by whom. It answers whether
-- anybody may have got it: where the server refuses, the waiter comes to look by itself.
local function publish(key, waiter, from)
  local message = waiter .. ' ' .. #from .. ' ' .. from .. key
  local listeners = redis.pcall('PUBLISH', 'redlatch:wake:' .. string.match(waiter, '^%-?%+?([^/]*)'), message)
  return type(listeners) == 'table' or listeners > 0
end
