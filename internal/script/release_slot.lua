-- Deletes the key of a slot if it is this holder's, and wakes up a waiter for a permit. Safe on any
-- node at any time.
-- KEYS  the slot's key, or the queue's to release whichever slot the holder has; the slot's
--       counter; the queue's key; its next
-- ARGV  as of the release step, but for '>'
-- Answers 1; {holder, remaining ms} when another's; 0 when there is none.
local slot, key, next, id, waiter, ticket = KEYS[1], KEYS[3], KEYS[4], ARGV[1], ARGV[4], ARGV[5]
if slot == key and id ~= waiter then
  local keys = slots(key, SLOTS)
  for i, value in ipairs(redis.call('MGET', unpack(keys))) do
    if value == id then
      slot = keys[i]
    end
  end
end
local seen = redis.call('MGET', slot, KEYS[2], next)
-- rule: release-compares
local ours, said = seen[1] == id, seen[3]
if ours then
  if (tonumber(seen[2]) or 0) < tonumber(ARGV[2]) then
    redis.call('PSETEX', KEYS[2], ARGV[3], ARGV[2])
  end
  redis.call('DEL', slot)
end
if said or waiter then
  local now = clock(redis.call('TIME'))
  local turn = waiter and string.match(said or '', '^(%S+) %d+') == waiter
  quit(key, next, said, waiter, ticket, now)
  if ours or turn then
    wake(key, next, said, now, nil, nil, true)
  end
end
if ours then
  return 1
end
-- MGET says nothing for a key of another type: let the server say what it is.
local holder = seen[1] or redis.call('GET', slot)
return holder and {string.sub(holder, 1, SHOWN), redis.call('PTTL', slot)} or 0
