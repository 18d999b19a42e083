-- Announces a token at a guard key and, if no larger one has been seen, goes on
-- to the body that is appended below: both are one atomic step.
-- KEYS  guard, then the body's
-- ARGV  token, how long the guard is kept in ms (0: for ever), then the body's
-- Answers {'ok', what the body returned} or {'stale', the largest token or the floor}.
local guard, token, keep = KEYS[1], ARGV[1], tonumber(ARGV[2])
local seen = redis.call('GET', guard)
if seen then
  if #seen > 16 or not string.match(seen, '^[1-9]%d*$') then
    return redis.error_reply('REDLATCH ' .. guard .. ' is a fencing guard, but holds no token')
  end
  -- Both are below 2^53, where a number is exact. The text is what is stored and
  -- answered: made from a number, it would lose digits.
  if tonumber(seen) > tonumber(token) then
    return {'stale', seen}
  end
elseif keep > 0 then
  -- The guard may have been here and expired, with a larger token in it. Every
  -- such token is older than what was kept, by this same clock; half of that
  -- leaves room for clocks that disagree.
  local now = redis.call('TIME')
  local floor = math.floor(now[1] * 1000000 + now[2] - keep * 500)
  if tonumber(token) < floor then
    return {'stale', string.format('%.0f', floor)}
  end
end
if keep > 0 then
  redis.call('SET', guard, token, 'PX', ARGV[2])
elseif seen ~= token then
  redis.call('SET', guard, token)
elseif redis.pcall('PTTL', guard) ~= -1 then
  -- Somebody has made it with a time to live. A user without the right goes on
  -- with that. A server that is out of memory refuses nothing after a PERSIST.
  redis.pcall('PERSIST', guard)
end

local keys, args = {}, {}
for i = 2, #KEYS do keys[i - 1] = KEYS[i] end
for i = 3, #ARGV do args[i - 2] = ARGV[i] end
