-- What a release does where there may be a line.
local record, next, waiter, ticket, from = KEYS[1], KEYS[3], ARGV[4], ARGV[5], nil
if waiter == '>' then
  waiter, from = nil, ARGV[1]
end
local called
if seen[2] or waiter then
  local now = clock()
  if waiter and ticket == '0' then
    leave(record, next, waiter)
  elseif waiter then
    stand(record, next, waiter, ticket, now)
  end
  if ours or not seen[1] then
    called = call(record, next, seen[2], now, nil, from, true)
  end
end
if ours then
  return called and 2 or 1
end
-- MGET says nothing for a key of another type: let the server say what it is.
local holder = seen[1] or redis.call('GET', record)
return holder and {holder, redis.call('PTTL', record)} or 0
