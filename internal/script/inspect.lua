-- Reads all that admission depends on, in one round trip. Changes nothing.
-- KEYS  admission, deployment record, quarantine; or others, where the node is a Cluster
-- Answers INFO, what the keys have ('' for nothing, null for what is not a string), and the
-- time in seconds.
-- rule: looking-writes-nothing
local info = {}
for i, section in ipairs({'server', 'replication', 'persistence', 'memory', 'stats', 'commandstats'}) do
  info[i] = redis.call('INFO', section)
end
local answer = {table.concat(info)}
for i, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      return value
    end
    answer[1 + i] = false
  else
    answer[1 + i] = value or ''
  end
end
answer[#KEYS + 2] = redis.call('TIME')[1]
return answer
