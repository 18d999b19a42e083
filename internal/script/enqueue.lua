-- Keeps a waiter's place in the queue for the key, and wakes up the first when the key is free. A
-- waiter that was not heard of for PATIENCE ms loses its place.
-- KEYS  key, admission, next
-- ARGV  step, waiter, its ticket or 0, expected admission; for permits: how many slots there are
-- Answers {how many are ahead, ticket, holder, remaining ms}; 0 when not admitted. When the key is
-- free, the holder is '', the ms are those left to the waiter that was woken up, which is this one
-- if 0 are ahead, and a fifth element is the holder who left it keys on other nodes, or ''. To a
-- reader the key is free, too, where readers have it and no writer is ahead.
local key, next, waiter, ticket = KEYS[1], KEYS[3], ARGV[2], ARGV[3]
local seen = redis.call('MGET', key, KEYS[2], next)
local time = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[2], seen[2], ARGV[4], time) then
  return 0
end
local now, microseconds = clock(time)
local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
mend(queue)
mend(heartbeats)
local lapsed = redis.call('ZRANGE', heartbeats, '-inf', '(' .. now, 'BYSCORE', 'LIMIT', 0, 64)
-- No heartbeat can be so late.
for _, other in ipairs(redis.call('ZRANGE', heartbeats, '(' .. now + PATIENCE, '+inf', 'BYSCORE', 'LIMIT', 0, 64)) do
  lapsed[#lapsed + 1] = other
end
for _, other in ipairs(lapsed) do
  leave(key, next, other)
end
if ticket == '0' then
  -- A waiter whose user may not use these, as it will have to, is refused before it has a place in the queue.
  redis.call('ZRANK', queue, waiter)
  redis.call('ZREM', queue, '')
  ticket = redis.call('ZSCORE', queue, waiter) or reads(waiter) and placeOf(queue, seen[1]) or microseconds
end
if tonumber(ticket) > microseconds + 1000 * PATIENCE then
  -- This clock was set back, or the ticket is by another node's. All who come until then would be ahead.
  ticket = microseconds
end
ticket = string.format('%.0f', tonumber(ticket))
enqueue(key, next, waiter, ticket, now)
local holder, left = held(key, seen[1], ARGV[5])
if holder and not (reads(waiter) and free(key, next, seen[1])) then
  local ahead, said = redis.call('ZRANK', queue, waiter), seen[3] or '-'
  if ahead == 0 and (said == '-' or string.byte(said) == 61) then
    said = first(waiter)
  end
  redis.call('SET', next, said, 'PX', PATIENCE)
  return {ahead, ticket, holder, left}
end
local who, deadline, from = wake(key, next, seen[3], now, waiter)
local ahead = redis.call('ZRANK', queue, waiter)
deadline = deadline or now + GRACE -- wake left out too many: the next step goes on
if reads(waiter) and reads(who) then
  ahead = behind(queue, waiter) and math.max(ahead, 1) or 0
elseif who == waiter then
  ahead = 0 -- also if one with an earlier ticket has come since
else
  ahead = math.max(ahead, 1)
end
return {ahead, ticket, '', deadline - now, from or ''}
