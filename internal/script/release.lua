-- Deletes the key if it is this holder's. Safe on any node at any time.
-- KEYS  key, counter, next
-- ARGV  holder id, token to store if larger or 0, counter TTL in ms,
--       and of an attempt by a waiter: waiter, its ticket to wait with or 0 to leave;
--       or '>' to have the first in the queue told, where the holder's key is deleted, that
--       it may take those on other nodes over
-- Answers 1, or 2 when one who waits was woken up; {holder, remaining ms} when another's; 0 when
-- there is none.
local seen = redis.call('MGET', KEYS[1], KEYS[3], KEYS[2])
-- rule: release-compares
local ours, waiter, from = seen[1] == ARGV[1], ARGV[4], nil
if waiter == '>' then
  -- A holder whose key is not here is not answered that somebody was woken up, and would
  -- take its keys on other nodes for lost.
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
