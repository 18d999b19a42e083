-- Grants the key to a reader if nobody has it, or readers have it and no writer waits. The first
-- reader raises the counter, as a writer does; the others are granted under the same one.
-- KEYS  key, counter, admission, next, readers
-- ARGV  as of the acquire step, but for '=' and a block
-- Answers {counter, 1 if the key was transferred, 1 if others wait}, or the counter to a repeat;
-- {holder, remaining ms} when held, the holder '' when a writer comes first; 0 when not admitted.
local key, next, readers = KEYS[1], KEYS[4], KEYS[5]
local id, ttl, waiter, from = ARGV[2], tonumber(ARGV[3]), ARGV[8] or '', ARGV[9] or ''
local seen = redis.call('MGET', key, KEYS[2], KEYS[3], next)
local time = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[3], seen[3], ARGV[7], time) then
  return 0
end
local now, microseconds = clock(time)
local under = opened(seen[1])
local at, lasts = now, true
if under then
  at, lasts = instant(key, readers, now)
end
if not lasts then
  -- A server that was started from an older file may have such a key, under an older counter.
  redis.call('DEL', key)
  seen[1], under = false, nil
end
-- rule: repeat-granted-again
if under and ends(readers, id) > at then
  return math.max(tonumber(seen[2]) or 0, under)
end
-- rule: acquire-only-free
if seen[1] and not under and (seen[1] ~= from or from == '') then
  return {string.sub(seen[1], 1, SHOWN), redis.call('PTTL', key)}
end
local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
local who, deadline
if seen[4] and waiter ~= '*' then
  mend(queue)
  mend(heartbeats)
  who, deadline = string.match(seen[4], '^(%S+) (%d+)')
  local left = (tonumber(deadline) or 0) - now
  -- Nobody is woken up for longer than GRACE.
  if who and not reads(who) and left >= 0 and left <= GRACE then
    return {'', left}
  end
  -- rule: waiting-writer-first
  if behind(queue, waiter) then
    return {'', seen[1] and redis.call('PTTL', key) or 0}
  end
end

local counter
if under then
  -- rule: readers-one-counter
  counter = math.max(tonumber(seen[2]) or 0, under)
  if not seen[2] then
    -- GET makes the server refuse a key of another type, which must not be overwritten.
    redis.call('SET', KEYS[2], string.format('%.0f', counter), 'PX', ARGV[6], 'GET')
  end
else
  -- rule: counter-clamped
  counter = math.min(math.max(tonumber(ARGV[4]), microseconds - CLAMP), microseconds + CLAMP)
  if seen[2] then
    -- rule: counter-bounded
    if not string.find(seen[2], '^%d+$') or #seen[2] > 16 or tonumber(seen[2]) >= COUNTERS then
      return redis.error_reply('REDLATCH the token counter ' .. KEYS[2] .. ' is ' .. string.format('%q', string.sub(seen[2], 1, 32))
        .. ", which no client has written: delete the key when nobody holds the lock, or raise the resource's own")
    end
    -- rule: counter-raised
    counter = math.max(counter, tonumber(seen[2]) + 1)
  end
  local text = string.format('%.0f', counter)
  if seen[1] then
    redis.call('SET', key, 'redlatch:shared ' .. text, 'PX', ttl)
  elseif not redis.call('SET', key, 'redlatch:shared ' .. text, 'PX', ttl, 'NX') then
    -- MGET says nothing for a key of another type: let the server say what it is.
    return redis.call('GET', key)
  end
  local stored = redis.pcall('SET', KEYS[2], text, 'PX', ARGV[6], 'GET')
  if type(stored) == 'table' and stored.err then -- an error alone does not undo what came before it
    redis.call('DEL', key)
    if string.find(stored.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('REDLATCH the token counter ' .. KEYS[2] .. ' is of another type: delete the key when nobody holds the lock')
    end
    return stored
  end
  redis.call('DEL', readers)
end
local shared, failed = pcall(function()
  redis.call('ZREM', readers, '') -- who may not use it could not leave
  share(key, readers, id, ttl, at)
end)
if not shared then
  if not under then -- an error alone does not undo what came before it
    redis.call('DEL', key)
    redis.pcall('DEL', readers)
  end
  error(failed, 0)
end

local others = seen[4]
if seen[4] and waiter ~= '*' then
  leave(key, next, waiter)
  others = redis.call('ZRANGE', queue, 0, 0)[1]
  if not others then
    redis.call('DEL', next, queue, heartbeats)
  elseif not (reads(who) and reads(others)) then
    redis.call('SET', next, first(others), 'PX', PATIENCE)
  end
end
return {counter, seen[1] and not under and 1 or 0, others and 1 or 0}
