-- Prolongs those of several keys that are their holder's, as the extend step does one.
-- KEYS  admission, then of each: key, counter
-- ARGV  step, counter TTL in ms, the admission expected, then of each: holder id, TTL in ms, token
-- Answers a digit for each, as one string: 1; 0 when there is no key; 2 when it is another's. -1 when
-- not admitted.
local seen = redis.call('MGET', unpack(KEYS))
-- rule: admission-read
if not admitted(KEYS[1], seen[1], ARGV[3], redis.call('TIME')) then
  return -1
end
local answers = {}
for i = 1, (#KEYS - 1) / 2 do
  local k, a = 2 * i, 3 * i + 1
  -- rule: extend-never-creates
  if seen[k] ~= ARGV[a] then
    answers[i] = seen[k] and '2' or '0'
  else
    prolong(KEYS[k], ARGV[a + 1], ARGV[2])
    local last, token = seen[k + 1], ARGV[a + 2]
    if last ~= token and (tonumber(last) or 0) < tonumber(token) then
      redis.call('PSETEX', KEYS[k + 1], ARGV[2], token)
    end
    answers[i] = '1'
  end
end
return table.concat(answers)
