-- The rest of a release where there may be a queue: its attempt was a waiter's, or next does not
-- name the first.
local key, next, ticket = KEYS[1], KEYS[3], ARGV[5]
local woken
if seen[2] or waiter then
  local now = clock(redis.call('TIME'))
  quit(key, next, seen[2], waiter, ticket, now)
  if ours or free(key, next, seen[1]) then
    woken = wake(key, next, seen[2], now, nil, from, true)
  end
end
if ours then
  return woken and 2 or 1
end
-- MGET says nothing for a key of another type: let the server say what it is.
local holder = seen[1] or redis.call('GET', key)
return holder and {string.sub(holder, 1, SHOWN), redis.call('PTTL', key)} or 0
