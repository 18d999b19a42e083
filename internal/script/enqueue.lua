-- Keeps a waiter's place in the queue for the key, and wakes up the first when
-- the key is free. Whoever was not heard of for PATIENCE ms loses its place.
-- KEYS  key, admission, next
-- ARGV  step, waiter, its ticket or 0, the admission expected; of a queue for permits: how many
--       slots there are
-- Answers {how many are ahead, ticket, holder, remaining ms}; when the key is
-- free the holder is '' and the ms are those that the one who was woken up has
-- left, 0 ahead meaning the waiter itself, and the holder follows who left its
-- keys on other nodes to whoever is woken up, or ''; 0 when not admitted. To a reader the
-- key is free, too, where readers have it and no writer is ahead.
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
-- Nobody was heard of so late.
for _, other in ipairs(redis.call('ZRANGE', heartbeats, '(' .. now + PATIENCE, '+inf', 'BYSCORE', 'LIMIT', 0, 64)) do
  lapsed[#lapsed + 1] = other
end
for _, other in ipairs(lapsed) do
  leave(key, next, other)
  if seen[3] == '=' .. other then
    seen[3] = '-'
  end
end
if ticket == '0' then
  ticket = redis.call('ZSCORE', queue, waiter) or reads(waiter) and placeOf(queue, seen[1]) or microseconds
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
local ahead = redis.call('ZRANK', queue, waiter) or 0
deadline = deadline or now + GRACE -- so many were left out that the rest is for the next time
if reads(waiter) and reads(who) then
  ahead = behind(queue, waiter) and math.max(ahead, 1) or 0
elseif who ~= waiter then
  ahead = math.max(ahead, 1)
end
return {ahead, ticket, '', deadline - now, from or ''}
