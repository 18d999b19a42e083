-- Announces a reader's token at a guard key and, if no writer's larger one has
-- been seen, goes on to the body that is appended below: both are one atomic
-- step. The guard key has the largest token of all, as enter.lua left it or as
-- it is left here. Beside it, the shared key has the guard key's token and the
-- largest writer's; it counts only as long as the first of them is still the
-- guard key's: enter.lua, which does not know of it, makes it void.
-- KEYS  guard, shared, then the body's
-- ARGV  token, how long the guard is kept in ms (0: for ever), then the body's
-- Answers as enter.lua does, a stale reader with the largest writer's token.
local guard, shared, token, keep = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local seen = redis.call('GET', guard)
local largest, writer = token, '0'
if seen then
  if #seen > 16 or not string.match(seen, '^[1-9]%d*$') then
    return redis.error_reply('REDLATCH ' .. guard .. ' is a fencing guard, but holds no token')
  end
  local of, before = string.match(redis.call('GET', shared) or '', '^(%d+) (%d+)$')
  writer = of == seen and before or seen
  -- rule: resource-refuses-reader
  if tonumber(writer) > tonumber(token) then
    return {'stale', writer}
  end
  if tonumber(seen) > tonumber(token) then
    largest = seen
  end
elseif keep > 0 then
  -- As in enter.lua.
  local now = redis.call('TIME')
  local floor = math.floor(now[1] * 1000000 + now[2] - keep * 500)
  if tonumber(token) < floor then
    return {'stale', string.format('%.0f', floor)}
  end
  -- The guard that is made here says so from now on: what it forgot may have been
  -- a writer's.
  writer = string.format('%.0f', math.max(floor, 0))
end
if keep > 0 then
  redis.call('SET', guard, largest, 'PX', ARGV[2])
  redis.call('SET', shared, largest .. ' ' .. writer, 'PX', ARGV[2])
elseif largest ~= seen then
  redis.call('SET', guard, largest)
  redis.call('SET', shared, largest .. ' ' .. writer)
elseif redis.pcall('PTTL', guard) ~= -1 or redis.call('PTTL', shared) >= 0 then
  -- As in enter.lua, which may have kept the guard key alone.
  redis.pcall('PERSIST', guard)
  redis.pcall('PERSIST', shared)
end

local keys, args = {}, {}
for i = 3, #KEYS do keys[i - 2] = KEYS[i] end
for i = 3, #ARGV do args[i - 2] = ARGV[i] end
