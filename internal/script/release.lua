-- Deletes the key if it is this holder's. Safe on any node at any time. This is the beginning, and
-- ends here where nobody waits. Else notify.lua follows, the usual way to wake up the first in the
-- queue, and then release_queued.lua, which has all the other ways. What they share is seen, ours,
-- waiter and from.
-- KEYS  key, counter, next
-- ARGV  holder id, token to store if larger or 0, counter TTL in ms, then, for an attempt by a
--       waiter: waiter, its ticket to go on waiting or 0 to leave; or '>' to tell the first in the
--       queue, if the holder's key is deleted here, that it may take over those on other nodes
-- Answers 1, or 2 when a waiter was woken up; {holder, remaining ms} when another's; 0 when there
-- is none.
local seen = redis.call('MGET', KEYS[1], KEYS[3], KEYS[2])
-- rule: release-compares
local ours, waiter, from = seen[1] == ARGV[1], ARGV[4], nil
if waiter == '>' then
  -- A holder whose key is not here is not told that somebody was woken up: it would take keys that
  -- were taken over on other nodes for lost.
  -- rule: transfer-only-held
  waiter, from = nil, ours and ARGV[1] or nil
end
if ours then
  if ARGV[2] ~= '0' and (tonumber(seen[3]) or 0) < tonumber(ARGV[2]) then
    redis.call('PSETEX', KEYS[2], ARGV[3], ARGV[2])
  end
  redis.call('DEL', KEYS[1])
end
if ours and not seen[2] and not waiter then
  return 1
end
