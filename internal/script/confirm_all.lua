-- Stores the attempt's token on a node that granted several keys under a smaller counter, if all
-- were this attempt's without a break, as the confirm step checks for one.
-- KEYS  of each: key, counter, next
-- ARGV  as of the confirm step
-- Answers 1 or 0.
local seen = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS, 3 do
  -- rule: confirm-compares
  -- rule: all-or-none
  if seen[i] ~= ARGV[2] or seen[i + 1] ~= ARGV[3] then
    return 0
  end
end
for i = 1, #KEYS, 3 do
  -- rule: token-stored
  redis.call('PSETEX', KEYS[i + 1], ARGV[5], ARGV[4])
end
return 1
