-- What a release does where there may be a line.
local record, next, waiter, ticket, from = KEYS[1], KEYS[3], ARGV[4], ARGV[5], nil
if waiter == '>' then
  waiter, from = nil, ARGV[1]
end
if ours and not waiter and string.byte(seen[2]) == 61 then
  -- The usual way: it was looked up before who is first. One who has left since passes
  -- the call on, and one who cannot be reached is found out below.
  local who = string.sub(seen[2], 2)
  if publish(record, who, from or '') then
    keep(next, who, clock() + GRACE, from or '')
    return 2
  end
end
local called
if seen[2] or waiter then
  local now = clock()
  if waiter and ticket == '0' then
    leave(record, next, waiter)
    if seen[2] == '=' .. waiter then
      redis.call('SET', next, '-', 'PX', PATIENCE)
    end
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
