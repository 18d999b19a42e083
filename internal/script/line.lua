-- What next says: nothing where nobody waits; '-' if somebody does; '=who', who was the
-- first in line when last looked at; 'who until from', who was called.

-- side names a side key of the line: it lies beside next, 'redlatch:{tag}:next:record'.
local function side(record, next, kind)
  return string.sub(next, 1, -#record - 6) .. kind .. record
end

-- mend deletes a key of another type, which nobody has a use for: no line is kept in it.
local function mend(key)
  local places = redis.pcall('ZRANGE', key, 0, 0)
  if places.err and string.find(places.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', key)
  end
end

-- stand gives a waiter its place in the line.
local function stand(record, next, waiter, ticket, now)
  local line, beats = side(record, next, 'line:'), side(record, next, 'beat:')
  redis.call('ZADD', line, ticket, waiter)
  redis.call('ZADD', beats, now + PATIENCE, waiter)
  redis.call('PEXPIRE', line, 2 * PATIENCE)
  redis.call('PEXPIRE', beats, 2 * PATIENCE)
end

-- leave takes it away, and reports whether it had one.
local function leave(record, next, waiter)
  redis.call('ZREM', side(record, next, 'beat:'), waiter)
  return redis.call('ZREM', side(record, next, 'line:'), waiter) == 1
end

-- clock is what TIME has answered, in ms and in µs.
local function clock(time)
  local microseconds = time[1] * 1000000 + time[2]
  return math.floor(microseconds / 1000), microseconds
end

-- keep notes who was called, until when, and from.
local function keep(next, who, deadline, from)
  redis.call('SET', next, who .. ' ' .. string.format('%.0f', deadline) .. ' ' .. from, 'PX', PATIENCE)
end

-- first is what next says of the first in line. One that hears nothing is not sent for.
local function first(who)
  return string.byte(who) == 45 and '-' or '=' .. who
end

-- call calls the first in line to take the record, which is free. Until GRACE ms have
-- passed nobody else is given it here. One who was called, did not take it and was not
-- heard of since loses its place. One whose place has lapsed, or whose connection nobody
-- listens on any more, is left out; one that says it hears nothing ('-') comes to look by
-- itself.
-- self is the caller, who needs no message; again repeats the message to one who
-- was called already; said is what next has: from is the last holder who left its
-- records on other nodes to whoever is called, if any did. It holds nothing any more, so
-- it does no harm if it is out of date.
-- Answers who was called, until when, and from.
local function call(record, next, said, now, self, from, again)
  local line, beats = side(record, next, 'line:'), side(record, next, 'beat:')
  local who, deadline, before = string.match(said or '', '^(%S+) (%d+) ?(.*)$')
  from = from or before or ''
  deadline = tonumber(deadline)
  -- Nobody is called for longer than GRACE.
  if who and deadline >= now and deadline <= now + GRACE and redis.call('ZSCORE', line, who) then
    if from ~= before then
      keep(next, who, deadline, from)
    end
    if again and string.byte(who) ~= 45 then
      publish(record, who, from)
    end
    return who, deadline, from
  end
  if who and who ~= self then
    -- A beat is PATIENCE after the waiter was heard of, unless the clock was set back.
    local heard = (tonumber(redis.call('ZSCORE', beats, who)) or 0) - PATIENCE
    if heard <= deadline - GRACE or heard > now then
      leave(record, next, who)
    end
  end
  for _ = 1, 1024 do
    local head = redis.call('ZRANGE', line, 0, 0)[1]
    if not head then
      break
    end
    local beat = tonumber(redis.call('ZSCORE', beats, head)) or 0
    local there = beat > now and beat <= now + PATIENCE
    if there and head ~= self and string.byte(head) ~= 45 then
      there = publish(record, head, from)
    end
    if there then
      keep(next, head, now + GRACE, from)
      return head, now + GRACE, from
    end
    leave(record, next, head)
  end
  redis.call('DEL', next)
end
