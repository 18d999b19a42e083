-- Deletes, of several records, those that are their holder's and for which nobody
-- waits. What is not so simple is left as it is, and to be released by itself.
-- KEYS  of each: record, next
-- ARGV  of each: holder id
-- Answers a 1 for each that was deleted and a 0 for each that was not, as one string.
local seen = redis.call('MGET', unpack(KEYS))
local answers, deleted = {}, {}
for i = 1, #ARGV do
  answers[i] = '0'
  if seen[2 * i - 1] == ARGV[i] and not seen[2 * i] then
    answers[i] = '1'
    deleted[#deleted + 1] = KEYS[2 * i - 1]
  end
end
if deleted[1] then
  redis.call('DEL', unpack(deleted))
end
return table.concat(answers)
