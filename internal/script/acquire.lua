-- Grants the record to this attempt if it is free, under a counter larger than
-- every one before it.
-- KEYS  record, counter, admission, next
-- ARGV  step, holder id, TTL in ms, proposed counter in µs, its seconds, counter TTL in ms,
--       if any: waiter, '' for nobody, '*' for one who pushes in,
--       '=' for one whose id may have been used before: it then is in its own way;
--       holder who hands the record over, or '' for nobody;
--       lowest, where a block of counters is wanted, whose largest is the proposed one
-- Answers the counter, in {counter, 1 if it was handed over, 1 if others wait} where
-- others may wait or nothing was there to be handed over; {holder, remaining ms} when held, the
-- holder '' when a waiter was called to take it; 0 when not admitted.
local id, proposed, waiter, from = ARGV[2], ARGV[4], ARGV[7], ARGV[8]
local lowest = ARGV[9] or proposed
if from == '' then
  from = nil
end
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
if FENCED and seen[3] ~= AGREEMENT then
  return 0
end
if seen[1] == id and waiter ~= '=' then
  -- A repeat of a grant that was executed: it is granted again, unchanged.
  return tonumber(seen[2]) or redis.error_reply('REDLATCH the fence counter of ' .. KEYS[1] .. ' is gone')
end
if seen[1] and seen[1] ~= from then
  return {seen[1], redis.call('PTTL', KEYS[1])}
end
local who, deadline, now
if seen[4] and waiter ~= '*' then
  who, deadline = string.match(seen[4], '^(%S+) (%d+)') -- where somebody was called
end
if who then
  now = redis.call('TIME')
  local left = deadline - now[1] * 1000 - math.floor(now[2] / 1000)
  if who ~= waiter and left >= 0 then
    return {'', left}
  end
end

now = now or redis.call('TIME')
local counter = proposed
-- Decimal strings of equal length compare as numbers do, and the same second
-- means that the proposal is within the clamp: the usual path converts nothing.
if now[1] ~= ARGV[5] or (seen[2] and (#seen[2] ~= #lowest or seen[2] >= lowest)) then
  local clock = now[1] * 1000000 + now[2]
  local number = math.min(math.max(tonumber(proposed), clock - CLAMP), clock + CLAMP)
  number = math.max(number, (tonumber(seen[2]) or 0) + 1 + proposed - lowest)
  counter = string.format('%.0f', number) -- tostring would lose digits
end

if seen[1] then
  redis.call('SET', KEYS[1], id, 'PX', ARGV[3])
elseif not redis.call('SET', KEYS[1], id, 'PX', ARGV[3], 'NX') then
  -- MGET says nothing for a key of another type: let the server say what it is.
  return redis.call('GET', KEYS[1])
end
local stored = redis.pcall('PSETEX', KEYS[2], ARGV[6], counter)
if stored.err then -- an error alone does not undo what came before it
  redis.call('DEL', KEYS[1])
  return stored
end
local others = seen[4]
if who and who == waiter then
  local side = string.sub(KEYS[4], 1, -#KEYS[1] - 6)
  local line, beats = side .. 'line:' .. KEYS[1], side .. 'beat:' .. KEYS[1]
  local first = redis.call('ZRANGE', line, 0, 1)
  others = first[1] ~= who and first[1] or first[2]
  if others then
    redis.call('ZREM', line, who)
    redis.call('ZREM', beats, who)
    redis.call('SET', KEYS[4], string.byte(others) == 45 and '-' or '=' .. others, 'PX', PATIENCE)
  else
    redis.call('DEL', KEYS[4], line, beats)
  end
end
if seen[4] or from and not seen[1] then -- what is rare: a table costs more
  return {tonumber(counter), seen[1] and 1 or 0, others and 1 or 0}
end
return tonumber(counter)
