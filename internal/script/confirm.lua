-- Stores the attempt's token on a node that granted under a smaller counter. The counter is
-- compared too: every grant raises it, so an unchanged one proves that the key was this attempt's
-- without a break. The id alone does not, when a message is executed twice.
-- KEYS  key, counter
-- ARGV  step, holder id, counter granted under, token, counter TTL in ms
-- Answers 1 or 0.
local seen = redis.call('MGET', KEYS[1], KEYS[2])
-- rule: confirm-compares
if seen[1] ~= ARGV[2] or seen[2] ~= ARGV[3] then
  return 0
end
-- rule: token-stored
redis.call('PSETEX', KEYS[2], ARGV[5], ARGV[4])
return 1
