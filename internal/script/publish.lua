-- publish sends a waiter the message that it is called, and by whom; where the record was
-- granted to its bid, under which counter and to which. It answers whether anybody may have
-- got it: where the server refuses, which the second answer says, the waiter comes to look by
-- itself.
local function publish(record, waiter, from, counter, bid)
  bid = bid or ''
  local message = waiter .. ' ' .. (counter or '-') .. ' ' .. #from .. ' ' .. #bid .. ' ' .. from .. bid .. record
  local listeners = redis.pcall('PUBLISH', 'redlatch:call:' .. string.match(waiter, '^[^/]*'), message)
  local refused = type(listeners) == 'table'
  return refused or listeners > 0, refused
end
