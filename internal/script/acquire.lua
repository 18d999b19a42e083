-- Grants the key to this attempt if it is free, under a counter larger than every one before it.
-- KEYS  key, counter, admission, next
-- ARGV  step, holder id, TTL in ms, proposed counter in µs, its seconds, counter TTL in ms,
--       expected admission; optionally: waiter ('' for none, '*' for one that barges, '=' for an id
--       that may have been used before, whose key then is in the way); the holder who transfers the
--       key, or ''; if a block is wanted, its lowest counter: the proposed one is its largest
-- Answers the counter, or {counter, 1 if the key was transferred, 1 if others wait} where others
-- may wait or there was no key to transfer; {holder, remaining ms} when held, the holder '' when a
-- waiter was woken up to take the key; 0 when not admitted.
local id, proposed, waiter, from = ARGV[2], ARGV[4], ARGV[8], ARGV[9]
local lowest = ARGV[10] or proposed
if from == '' then
  from = nil
end
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
local now = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[7], now) then
  return 0
end
-- rule: repeat-granted-again
if seen[1] == id and waiter ~= '=' then
  -- A repeat of a grant that was executed: it is granted again, unchanged.
  return tonumber(seen[2]) or redis.error_reply('REDLATCH the token counter of ' .. KEYS[1] .. ' is gone')
end
-- rule: acquire-only-free
if seen[1] and seen[1] ~= from then
  return {string.sub(seen[1], 1, SHOWN), redis.call('PTTL', KEYS[1])}
end
local who, deadline
if seen[4] and waiter ~= '*' then
  who, deadline = string.match(seen[4], '^(%S+) (%d+)') -- only if somebody was woken up
end
if who then
  local left = deadline - now[1] * 1000 - math.floor(now[2] / 1000)
  -- Nobody is woken up for longer than GRACE.
  if who ~= waiter and left >= 0 and left <= GRACE then
    return {'', left}
  end
end

local counter = proposed
-- Decimal strings of equal length compare as numbers do, and the same second
-- means that the proposal is within the clamp: the usual path converts nothing.
if now[1] ~= ARGV[5] or (seen[2] and (#seen[2] ~= #lowest or seen[2] >= lowest)) then
  local clock, room = now[1] * 1000000 + now[2], proposed - lowest
  -- rule: counter-clamped
  local number = math.min(math.max(tonumber(proposed), clock - CLAMP), clock + CLAMP)
  if seen[2] then
    -- Beyond 2^53 a number and the next may be the same.
    -- rule: counter-bounded
    if not string.find(seen[2], '^%d+$') or #seen[2] > 16 or tonumber(seen[2]) >= COUNTERS - room then
      return redis.error_reply('REDLATCH the token counter ' .. KEYS[2] .. ' is ' .. string.format('%q', string.sub(seen[2], 1, 32))
        .. ", which no client has written: delete the key when nobody holds the lock, or raise the resource's own")
    end
    -- rule: counter-raised
    -- rule: block-raised
    number = math.max(number, tonumber(seen[2]) + 1 + room)
  end
  counter = string.format('%.0f', number) -- tostring would lose digits
end

if seen[1] then
  redis.call('SET', KEYS[1], id, 'PX', ARGV[3])
elseif not redis.call('SET', KEYS[1], id, 'PX', ARGV[3], 'NX') then
  -- MGET says nothing for a key of another type: let the server say what it is.
  return redis.call('GET', KEYS[1])
end
-- GET makes the server refuse a key of another type, which must not be overwritten.
local stored = redis.pcall('SET', KEYS[2], counter, 'PX', ARGV[6], 'GET')
if type(stored) == 'table' and stored.err then -- an error alone does not undo what came before it
  redis.call('DEL', KEYS[1])
  if string.find(stored.err, 'WRONGTYPE', 1, true) then
    return redis.error_reply('REDLATCH the token counter ' .. KEYS[2] .. ' is of another type: delete the key when nobody holds the lock')
  end
  return stored
end
local others = seen[4]
if who and who == waiter then
  -- The waiter that was woken up has the key now: it leaves the queue, and next names the first,
  -- unless that is a reader or hears no messages: their names begin with a dash, which is 45.
  local side = string.sub(KEYS[4], 1, -#KEYS[1] - 6) -- without 'next:' and the key
  local queue, heartbeats = side .. 'queue:' .. KEYS[1], side .. 'heartbeats:' .. KEYS[1]
  -- A key of another type is no queue. It must not end the step, which has granted.
  local first = redis.pcall('ZRANGE', queue, 0, 1)
  others = first[1] ~= who and first[1] or first[2]
  if others then
    redis.call('ZREM', queue, who)
    redis.pcall('ZREM', heartbeats, who)
    redis.call('SET', KEYS[4], string.byte(others) == 45 and '-' or '=' .. others, 'PX', PATIENCE)
  else
    redis.call('DEL', KEYS[4], queue, heartbeats)
  end
end
if seen[4] or from and not seen[1] then -- rare: a table costs more
  return {tonumber(counter), seen[1] and 1 or 0, others and 1 or 0}
end
return tonumber(counter)
