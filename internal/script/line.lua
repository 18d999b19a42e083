-- side names a side key of the line: it lies beside next, 'redlatch:{tag}:next:record'.
local function side(record, next, kind)
  return string.sub(next, 1, -#record - 6) .. kind .. record
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

-- clock reads the node's clock, in ms and in µs.
local function clock()
  local now = redis.call('TIME')
  local microseconds = now[1] * 1000000 + now[2]
  return math.floor(microseconds / 1000), microseconds
end

-- publish sends a waiter the message that it is called, and by whom. It answers how
-- many got it, or a table with the server's refusal.
local function publish(record, waiter, from)
  local message = waiter .. ' ' .. #from .. ' ' .. from .. record
  return redis.pcall('PUBLISH', 'redlatch:call:' .. string.match(waiter, '^[^/]*'), message)
end

-- call calls the first in line to take the record, which is free. Until GRACE ms have
-- passed nobody else is given it here. One whose place has lapsed, or whose
-- connection nobody listens on any more, is left out; one that says it hears
-- nothing ('-') comes to look by itself.
-- self is the caller, who needs no message; again repeats the message to one who
-- was called already; said is what next has, "who until from": from is the last
-- holder who left its records on other nodes to whoever is called, if any did. It
-- holds nothing any more, so it does no harm if it is out of date.
-- Answers who was called, until when, and from.
local function call(record, next, said, now, self, from, again)
  local line, beats = side(record, next, 'line:'), side(record, next, 'beat:')
  local who, deadline, before = string.match(said or '', '^(%S+) (%d+) ?(.*)$')
  from = from or before or ''
  if who and tonumber(deadline) >= now and redis.call('ZSCORE', line, who) then
    if from ~= before then
      redis.call('SET', next, who .. ' ' .. deadline .. ' ' .. from, 'PX', PATIENCE)
    end
    if again and string.sub(who, 1, 1) ~= '-' then
      publish(record, who, from)
    end
    return who, tonumber(deadline), from
  end
  for _ = 1, 16 do
    local first = redis.call('ZRANGE', line, 0, 0)[1]
    if not first then
      break
    end
    local listeners = (tonumber(redis.call('ZSCORE', beats, first)) or 0) - now
    if listeners > 0 and first ~= self and string.sub(first, 1, 1) ~= '-' then
      listeners = publish(record, first, from)
    end
    if type(listeners) == 'table' or listeners > 0 then
      redis.call('SET', next, first .. ' ' .. string.format('%.0f', now + GRACE) .. ' ' .. from, 'PX', PATIENCE)
      redis.call('ZADD', beats, now + GRACE, first)
      return first, now + GRACE, from
    end
    leave(record, next, first)
  end
  redis.call('DEL', next)
end
