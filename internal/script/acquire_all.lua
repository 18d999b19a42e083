-- Grants several keys to this attempt if all of them are free, under one counter that is larger
-- than every one before it of each key; else none.
-- KEYS  of each: key, counter, next; then the admission
-- ARGV  as of the acquire step, but for '='. Waiter and holder are for the first key. Then, in
--       place of a block: the attempt's ticket in any queue, or 0; and, if further keys are
--       transferred, their holders
-- Answers {counter, 1 if the first key was transferred, 1 if others wait for it}; {holder,
-- remaining ms, which} of the first key in the way, counted from 0, the holder '' when a waiter was
-- woken up to take it; 0 when not admitted.
local id, waiter = ARGV[2], ARGV[8] or ''
local last = #KEYS - 3
local seen = redis.call('MGET', unpack(KEYS))
local now = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[#KEYS], seen[#KEYS], ARGV[7], now) then
  return 0
end

-- from returns the holder who transfers KEYS[i], if one does.
local function from(i)
  local holder = ARGV[i == 1 and 9 or 10 + (i - 1) / 3]
  return holder ~= '' and holder or nil
end

-- later reports whether who came to the queue for a key after the attempt came to its first queue;
-- or at the same moment: then it is a place that the attempt has just left.
local function later(key, next, who)
  if ARGV[10] == '0' then
    return false
  end
  local ticket = redis.pcall('ZSCORE', side(key, next, 'queue:'), who)
  return type(ticket) == 'string' and tonumber(ticket) >= tonumber(ARGV[10])
end

local ours = 0
for i = 1, last, 3 do
  if seen[i] == id and seen[i + 1] == seen[2] then
    ours = ours + 3
  end
end
-- rule: repeat-granted-again
if ours == #KEYS - 1 and tonumber(seen[2]) then
  return {tonumber(seen[2]), 0, seen[3] and 1 or 0}
end
for i = 1, last, 3 do
  -- A key that has this attempt's own id is in the way, too: others of its keys have gone since
  -- they were granted together, so this step is a late repeat.
  -- rule: acquire-only-free
  -- rule: all-or-none
  -- rule: replaced-by-an-attempt
  if seen[i] and seen[i] ~= from(i) then
    return {string.sub(seen[i], 1, SHOWN), redis.call('PTTL', KEYS[i]), (i - 1) / 3}
  end
end
local ms, us = clock(now)
local woken
for i = 1, last, 3 do
  local who, deadline = string.match(seen[i + 2] or '', '^(%S+) (%d+)')
  if who and i == 1 and who == waiter then
    woken = who
  elseif who and not (waiter == '*' and (i == 1 or from(i))) then
    local left = deadline - ms
    -- Nobody is woken up for longer than GRACE. Of two who were woken up to take keys that both
    -- want, the one who came first takes them.
    if left >= 0 and left <= GRACE and (i == 1 or not later(KEYS[i], KEYS[i + 2], who)) then
      return {'', left, (i - 1) / 3}
    end
  end
end

-- rule: counter-clamped
local number = math.min(math.max(tonumber(ARGV[4]), us - CLAMP), us + CLAMP)
for i = 1, last, 3 do
  local before = seen[i + 1]
  if before then
    -- rule: counter-bounded
    if not string.find(before, '^%d+$') or #before > 16 or tonumber(before) >= COUNTERS then
      return redis.error_reply('REDLATCH the token counter ' .. KEYS[i + 1] .. ' is ' .. string.format('%q', string.sub(before, 1, 32))
        .. ", which no client has written: delete the key when nobody holds the lock, or raise the resource's own")
    end
    -- rule: counter-raised
    -- rule: one-token
    number = math.max(number, tonumber(before) + 1)
  end
end
local counter = string.format('%.0f', number)

for i = 1, last, 3 do
  local granted, reply = i, nil
  if seen[i] then
    reply = redis.pcall('SET', KEYS[i], id, 'PX', ARGV[3])
  else
    reply = redis.pcall('SET', KEYS[i], id, 'PX', ARGV[3], 'NX')
  end
  if not reply or reply.err then
    granted = i - 3
    -- MGET says nothing for a key of another type: let the server say what it is.
    reply = reply or redis.pcall('GET', KEYS[i])
  else
    -- GET makes the server refuse a key of another type, which must not be overwritten.
    reply = redis.pcall('SET', KEYS[i + 1], counter, 'PX', ARGV[6], 'GET')
  end
  if granted < i or type(reply) == 'table' and reply.err then -- an error alone does not undo what came before it
    for k = 1, granted, 3 do
      redis.call('DEL', KEYS[k])
    end
    if granted == i and string.find(reply.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('REDLATCH the token counter ' .. KEYS[i + 1] .. ' is of another type: delete the key when nobody holds the lock')
    end
    return reply
  end
end
local others = seen[3]
if woken then
  local key, next = KEYS[1], KEYS[3]
  local queue, heartbeats = side(key, next, 'queue:'), side(key, next, 'heartbeats:')
  mend(queue)
  mend(heartbeats)
  leave(key, next, woken)
  others = redis.call('ZRANGE', queue, 0, 0)[1]
  if others then
    redis.call('SET', next, first(others), 'PX', PATIENCE)
  else
    redis.call('DEL', next, queue, heartbeats)
  end
end
return {number, seen[1] and 1 or 0, others and 1 or 0}
