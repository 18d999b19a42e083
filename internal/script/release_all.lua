-- Deletes those of several keys that are this holder's, and wakes up those who wait for them. Safe
-- on any node at any time.
-- KEYS  of each: key, counter, next
-- ARGV  as of the release step, but for '>'; waiter and ticket are for the first key
-- Answers 1, or 2 when a waiter was woken up, if all were this holder's; else {holder, remaining
-- ms} of the first that is another's, or 0.
local seen = redis.call('MGET', unpack(KEYS))
local now = clock(redis.call('TIME'))
local other, gone, woken
for i = 1, #KEYS, 3 do
  local key, next, said = KEYS[i], KEYS[i + 2], seen[i + 2]
  local waiter, ticket = i == 1 and ARGV[4] or nil, ARGV[5]
  -- rule: release-compares
  if seen[i] == ARGV[1] then
    if (tonumber(seen[i + 1]) or 0) < tonumber(ARGV[2]) then
      redis.call('PSETEX', KEYS[i + 1], ARGV[3], ARGV[2])
    end
    redis.call('DEL', key)
    seen[i] = false
  elseif seen[i] then
    other = other or i
  else
    gone = i
  end
  if said or waiter then
    quit(key, next, said, waiter, ticket, now)
    if free(key, next, seen[i]) then
      woken = wake(key, next, said, now, nil, nil, true) or woken
    end
  end
end
-- rule: all-or-none
if other then
  return {string.sub(seen[other], 1, SHOWN), redis.call('PTTL', KEYS[other])}
end
if gone then
  -- MGET says nothing for a key of another type: let the server say what it is.
  redis.call('GET', KEYS[gone])
  return 0
end
return woken and 2 or 1
