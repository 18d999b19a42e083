-- Grants those of several keys that are free and that nobody was woken up to take, under the
-- proposed counters. Deletes those of several others that are their holder's and for which nobody
-- waits. Leaves all other keys as they are: they are to be asked for one by one.
-- KEYS  admission, then of each to be granted: key, counter, next; then of each to be
--       deleted: key, next
-- ARGV  step, counter TTL in ms, the admission expected, how many are to be granted, then of each: holder id, TTL
--       in ms, proposed counter in µs; then of each to be deleted: holder id
-- Answers a 1 for each that was granted or deleted and a 0 for each that was not, as one
-- string; '' when not admitted. After an error nothing was deleted.
local seen = redis.call('MGET', unpack(KEYS))
local now = redis.call('TIME')
-- rule: admission-read
if not admitted(KEYS[1], seen[1], ARGV[3], now) then
  return ''
end
local wanted = ARGV[4] + 0
local answers, deleted = {}, {}
for i = 1, wanted do
  local k, a = 3 * i - 1, 3 * i + 2
  local last, proposed = seen[k + 1], ARGV[a + 2]
  -- As in the acquire step: within the clamp, and larger.
  local usual = not seen[k] and not seen[k + 2] and string.sub(proposed, 1, -7) == now[1]
    and (not last or #last == #proposed and last < proposed)
  answers[i] = '0'
  -- rule: acquire-only-free
  if usual and redis.call('SET', KEYS[k], ARGV[a], 'PX', ARGV[a + 1], 'NX') then
    local stored = redis.pcall('SET', KEYS[k + 1], proposed, 'PX', ARGV[2], 'GET')
    if type(stored) == 'table' and stored.err then
      redis.call('DEL', KEYS[k]) -- else a repeat would be granted under the old counter
    else
      answers[i] = '1'
    end
  end
end
for i = wanted + 1, #ARGV - 4 - 2 * wanted do
  local k = wanted + 2 * i
  answers[i] = '0'
  -- rule: release-compares
  if seen[k] == ARGV[4 + 2 * wanted + i] and not seen[k + 1] then
    deleted[#deleted + 1] = KEYS[k]
    answers[i] = '1'
  end
end
-- Last, so that after an error nothing was released.
if deleted[1] then
  redis.call('DEL', unpack(deleted))
end
return table.concat(answers)
