-- Grants, of several records, those that are free and that nobody is called to take,
-- under the counters proposed. What is not so simple is left as it is, and to be
-- asked for by itself.
-- KEYS  admission, then of each: record, counter, next
-- ARGV  step, counter TTL in ms, then of each: holder id, TTL in ms, proposed counter in µs
-- Answers a 1 for each that was granted and a 0 for each that was not, as one string;
-- '' when not admitted.
local seen = redis.call('MGET', unpack(KEYS))
if FENCED and seen[1] ~= AGREEMENT then
  return ''
end
local second = redis.call('TIME')[1]
local answers = {}
for i = 1, (#KEYS - 1) / 3 do
  local k, a = 3 * i - 1, 3 * i
  local last, proposed = seen[k + 1], ARGV[a + 2]
  -- As in the acquire step: within the clamp, and larger.
  local usual = not seen[k] and not seen[k + 2] and string.sub(proposed, 1, -7) == second
    and (not last or #last == #proposed and last < proposed)
  if usual and redis.call('SET', KEYS[k], ARGV[a], 'PX', ARGV[a + 1], 'NX') then
    redis.call('PSETEX', KEYS[k + 1], ARGV[2], proposed)
    answers[i] = '1'
  else
    answers[i] = '0'
  end
end
return table.concat(answers)
