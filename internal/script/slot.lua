-- Grants the first free one of k slots to this attempt, if there is one. The acquire step comes
-- with it, as a function.
-- KEYS  the queue's key, admission, next
-- ARGV  as of the acquire step up to waiter, but for '='; k, and which slot to begin with
-- Answers {counter, slot, 1 if others wait}; {holder, remaining ms} of the slot that may expire
-- first when all are held, the holder '' when a waiter was woken up to take a free one; 0 when not
-- admitted.
local key, next, id, waiter, k = KEYS[1], KEYS[3], ARGV[2], ARGV[8], tonumber(ARGV[9])
local keys = slots(key, k)
local names = {KEYS[2], next, unpack(keys)}
local values = redis.call('MGET', unpack(names))
local said, seen = values[2], {unpack(values, 3, k + 2)}
local now = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[2], values[1], ARGV[7], now) then
  return 0
end
-- take runs the acquire step for slot i, for whose key nobody waits, and returns the counter. Where
-- somebody else has written to the slot's next, the step answers with a table that begins with it.
local function take(i)
  local beside = string.sub(next, 1, -#key - 6)
  local answer = acquire({keys[i], beside .. 'token:' .. keys[i], KEYS[2], beside .. 'next:' .. keys[i]}, {unpack(ARGV, 1, 7)})
  return type(answer) == 'table' and type(answer[1]) == 'number' and answer[1] or answer
end
local chosen, more
for n = 0, k - 1 do
  local i = (ARGV[10] + n) % k + 1
  -- A repeat must not get a second slot.
  -- rule: one-slot
  if seen[i] == id then
    local counter = take(i)
    return type(counter) == 'number' and {counter, i - 1, said and 1 or 0} or counter
  end
  if not seen[i] then
    more = chosen
    chosen = chosen or i
  end
end
if not chosen then
  return {held(key, nil, k)}
end
local ms = clock(now)
local who, deadline = string.match(said or '', '^(%S+) (%d+)')
if who and who ~= waiter and waiter ~= '*' then
  local left = deadline - ms
  -- Nobody is woken up for longer than GRACE.
  if left >= 0 and left <= GRACE then
    return {'', left}
  end
end
local counter = take(chosen)
if type(counter) ~= 'number' then
  return counter
end
if who and who == waiter then
  local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
  mend(queue)
  mend(heartbeats)
  leave(key, next, who)
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  if head and more then
    -- One is woken up at a time: whoever takes a slot wakes up the next while another is free.
    -- rule: wakes-next-while-free
    said = wake(key, next, nil, ms)
  elseif head then
    said = first(head)
    redis.call('SET', next, said, 'PX', PATIENCE)
  else
    said = nil
    redis.call('DEL', next, queue, heartbeats)
  end
end
return {counter, chosen - 1, said and 1 or 0}
