-- What next says: nothing where nobody waits; '-' if somebody does; '=who' if who was the first in
-- the queue when last looked at; 'who until from' if who was woken up: '-+' for all readers that
-- were first.
--
-- A reader's name begins with '-+'. Readers who are to hold together have one place: before the
-- first writer, or right behind it.

-- side names a side key of the queue: it lies beside next, 'redlatch:{tag}:next:key'.
local function side(key, next, kind)
  return string.sub(next, 1, -#key - 6) .. kind .. key
end

-- mend deletes a key of another type, which is of no use: no queue can be kept in it.
local function mend(key)
  local places = redis.pcall('ZRANGE', key, 0, 0)
  if places.err and string.find(places.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', key)
  end
end

-- enqueue gives a waiter its place in the queue.
local function enqueue(key, next, waiter, ticket, now)
  local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
  redis.call('ZADD', queue, ticket, waiter)
  redis.call('ZADD', heartbeats, now + PATIENCE, waiter)
  redis.call('PEXPIRE', queue, 2 * PATIENCE)
  redis.call('PEXPIRE', heartbeats, 2 * PATIENCE)
end

-- leave takes that place away, and reports whether there was one.
local function leave(key, next, waiter)
  redis.call('ZREM', side(key, next, 'heartbeats:'), waiter)
  return redis.call('ZREM', side(key, next, 'queue:'), waiter) == 1
end

-- clock converts the answer of TIME to ms and to µs.
local function clock(time)
  local microseconds = time[1] * 1000000 + time[2]
  return math.floor(microseconds / 1000), microseconds
end

-- keep stores who was woken up, until when, and from.
local function keep(next, who, deadline, from)
  redis.call('SET', next, who .. ' ' .. string.format('%.0f', deadline) .. ' ' .. from, 'PX', PATIENCE)
end

-- first returns what next says of the first in the queue. One that hears nothing is not named.
local function first(who)
  return string.byte(who) == 45 and '-' or '=' .. who
end

-- reads reports whether a waiter is a reader, or readers were woken up.
local function reads(who)
  return who and string.sub(who, 1, 2) == '-+'
end

-- marked reports whether a key with this value is the readers'.
local function marked(holder)
  return string.sub(holder, 1, 16) == 'redlatch:shared '
end

-- free reports whether the first in the queue may take the key: nobody has it, or readers have it
-- and the first is one, too.
local function free(key, next, holder)
  return not holder or marked(holder) and reads(redis.call('ZRANGE', side(key, next, 'queue:'), 0, 0)[1])
end

-- wakeReaders wakes up the readers before the first writer, 256 at most, and reports whether there are
-- any. A reader loses its place if it has lapsed or cannot be reached. Who is woken up lapses if it is
-- not heard of within GRACE ms; those behind it who are too many to be woken up do not.
local function wakeReaders(key, next, now, self, from)
  local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
  local woken = false
  for _, reader in ipairs(redis.call('ZRANGE', queue, 0, 255)) do
    if not reads(reader) then
      break
    end
    local heartbeat = tonumber(redis.call('ZSCORE', heartbeats, reader)) or 0
    local there = heartbeat > now and heartbeat <= now + PATIENCE
    if there and reader ~= self and string.byte(reader, 3) ~= 45 then
      there = publish(key, reader, from)
    end
    if there then
      woken = true
      redis.call('ZADD', heartbeats, now + GRACE, reader)
    else
      leave(key, next, reader)
    end
  end
  return woken
end

-- quit does a release's part for the place of its attempt's waiter, if there was one: with a ticket
-- of 0 the place is given up, else kept. said is what next has.
local function quit(key, next, said, waiter, ticket, now)
  local from = string.match(said or '', '^%-%+ %d+ ?(.*)$') -- only if readers were woken up
  mend(side(key, next, 'queue:'))
  mend(side(key, next, 'heartbeats:'))
  if waiter and ticket == '0' then
    leave(key, next, waiter)
    if said == '=' .. waiter then
      redis.call('SET', next, '-', 'PX', PATIENCE)
    elseif from and not reads(waiter) then
      -- The readers behind this writer are among those who are first now.
      wakeReaders(key, next, now, nil, from)
    end
  elseif waiter then
    enqueue(key, next, waiter, ticket, now)
  end
end

-- wake wakes up the first in the queue, or all readers who are first, to take the key, which is
-- free. Nobody else is given it here until GRACE ms have passed. A waiter that was woken up, did
-- not take the key and was not heard of since loses its place; so does one that has lapsed, or on
-- whose connection nobody listens any more. One that says it hears nothing ('-') comes to look by
-- itself.
-- self is the waiter that asks, and needs no message. again repeats the message to one that was
-- woken up already. said is what next has. from is the last holder, if any, that left its keys on
-- other nodes to whoever is woken up. It holds nothing any more, so it does no harm if from is out
-- of date.
-- Answers who was woken up, until when, and from.
local function wake(key, next, said, now, self, from, again)
  local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
  local who, deadline, before = string.match(said or '', '^(%S+) (%d+) ?(.*)$')
  from = from or before or ''
  deadline = tonumber(deadline)
  local queued = who and not reads(who) and redis.call('ZSCORE', queue, who)
    or reads(who) and reads(redis.call('ZRANGE', queue, 0, 0)[1])
  -- Nobody is woken up for longer than GRACE.
  if who and deadline >= now and deadline <= now + GRACE and queued then
    if from ~= before then
      keep(next, who, deadline, from)
    end
    if again and string.byte(who) ~= 45 then -- each reader asks by itself
      publish(key, who, from)
    end
    return who, deadline, from
  end
  if who and who ~= self then
    -- A heartbeat is PATIENCE after the waiter was heard of.
    if (tonumber(redis.call('ZSCORE', heartbeats, who)) or 0) - PATIENCE <= deadline - GRACE then
      leave(key, next, who)
    end
  end
  for _ = 1, 1024 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      break
    end
    if reads(head) then
      -- rule: readers-together
      if wakeReaders(key, next, now, self, from) then
        keep(next, '-+', now + GRACE, from)
        return '-+', now + GRACE, from
      end
    else
      local heartbeat = tonumber(redis.call('ZSCORE', heartbeats, head)) or 0
      local there = heartbeat > now and heartbeat <= now + PATIENCE
      if there and head ~= self and string.byte(head) ~= 45 then
        there = publish(key, head, from)
      end
      if there then
        keep(next, head, now + GRACE, from)
        return head, now + GRACE, from
      end
      leave(key, next, head)
    end
  end
  redis.call('DEL', next)
end
