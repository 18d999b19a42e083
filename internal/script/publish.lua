-- publish sends a waiter the message that it is woken up, and by whom. It returns whether anybody
-- may have got it: where the server refuses, the waiter comes to look by itself. A waiter in a
-- Cluster has the key's slot in its name, '{tag}client/number': so has its channel.
local function publish(key, waiter, from)
  local message = waiter .. ' ' .. #from .. ' ' .. from .. key
  local client = string.match(waiter, '^%-?%+?([^/]*)')
  local channel, listeners = 'redlatch:wake:' .. client, nil
  if string.byte(client) == 123 then
    listeners = redis.pcall('SPUBLISH', channel, message)
  else
    listeners = redis.pcall('PUBLISH', channel, message)
  end
  return type(listeners) == 'table' or listeners > 0
end
