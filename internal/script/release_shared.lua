-- Takes a reader out, with the last one also the key, and wakes up who is next. Safe on any node at
-- any time.
-- KEYS  key, counter, next, readers
-- ARGV  as of the release step, but for '>'
-- Answers 1, or 2 when a waiter was woken up; {holder, remaining ms} when others have the key; 0
-- when nobody has.
local key, next, readers, waiter, ticket = KEYS[1], KEYS[3], KEYS[4], ARGV[4], ARGV[5]
local seen = redis.call('MGET', key, next, KEYS[2])
local now = clock(redis.call('TIME'))
local under, woken = opened(seen[1]), nil
local at = under and instant(key, readers, now)
-- rule: release-compares
local ours = under and ends(readers, ARGV[1]) > at
if ours then
  raise(KEYS[2], seen[3], ARGV[2], ARGV[3])
  -- While a Cluster's slot is being moved, the server ends a script that asks for a key which is not there: the last
  -- reader's hold is not taken out before the key is deleted.
  local last = redis.call('ZRANGE', readers, -2, -1)
  local other = last[#last] ~= ARGV[1] and last[#last] or last[#last - 1]
  local rest = other and ends(readers, other) - at or 0
  -- rule: marker-lasts-longest
  if rest > 0 then
    redis.call('ZREM', readers, ARGV[1])
    redis.call('PEXPIRE', key, rest)
    redis.call('PEXPIRE', readers, rest)
  else
    redis.call('DEL', key, readers)
    seen[1] = false
  end
end
if seen[2] or waiter then
  quit(key, next, seen[2], waiter, ticket, now)
  if free(key, next, seen[1]) then
    woken = wake(key, next, seen[2], now, nil, nil, true)
  end
end
if ours then
  return woken and 2 or 1
end
-- MGET says nothing for a key of another type: let the server say what it is.
local holder = seen[1] or redis.call('GET', key)
return holder and {string.sub(holder, 1, SHOWN), redis.call('PTTL', key)} or 0
