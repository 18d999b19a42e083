-- What else a release does where there may be a line: its attempt was a waiter's, or
-- nobody is known to be the first.
local record, next, ticket = KEYS[1], KEYS[3], ARGV[5]
local summoned
if seen[2] or waiter then
  local now = clock(redis.call('TIME'))
  mend(side(record, next, 'line:'))
  mend(side(record, next, 'beat:'))
  if waiter and ticket == '0' then
    leave(record, next, waiter)
    if seen[2] == '=' .. waiter then
      redis.call('SET', next, '-', 'PX', PATIENCE)
    end
  elseif waiter then
    stand(record, next, waiter, ticket, now)
  end
  if ours or not seen[1] then
    summoned = call(record, next, seen[2], now, nil, from, true)
  end
end
if ours then
  return summoned and 2 or 1
end
-- MGET says nothing for a key of another type: let the server say what it is.
local holder = seen[1] or redis.call('GET', record)
return holder and {holder, redis.call('PTTL', record)} or 0
