-- Grants the record to this attempt if it is free, under a counter larger than
-- every one before it.
-- KEYS  record, counter, admission
-- ARGV  step, holder id, TTL in ms, proposed counter in µs, its seconds, counter TTL in ms
-- Answers the counter; {holder, remaining ms} when held; 0 when not admitted.
local id, proposed = ARGV[2], ARGV[4]
local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
if FENCED and seen[3] ~= AGREEMENT then
  return 0
end
if seen[1] == id then
  -- A repeat of a grant that was executed: it is granted again, unchanged.
  return tonumber(seen[2]) or redis.error_reply('REDLATCH the fence counter of ' .. KEYS[1] .. ' is gone')
end
if seen[1] then
  return {seen[1], redis.call('PTTL', KEYS[1])}
end

local now = redis.call('TIME')
local counter = proposed
-- Decimal strings of equal length compare as numbers do, and the same second
-- means that the proposal is within the clamp: the usual path converts nothing.
if now[1] ~= ARGV[5] or (seen[2] and (#seen[2] ~= #proposed or seen[2] >= proposed)) then
  local clock = now[1] * 1000000 + now[2]
  local number = math.min(math.max(tonumber(proposed), clock - CLAMP), clock + CLAMP)
  number = math.max(number, (tonumber(seen[2]) or 0) + 1)
  counter = string.format('%.0f', number) -- tostring would lose digits
end

if not redis.call('SET', KEYS[1], id, 'PX', ARGV[3], 'NX') then
  -- MGET says nothing for a key of another type: let the server say what it is.
  return redis.call('GET', KEYS[1])
end
redis.call('PSETEX', KEYS[2], ARGV[6], counter)
return tonumber(counter)
