-- Says all that admission depends on, in one round trip. Changes nothing.
-- KEYS  deployment record, quarantine
local info = {}
for i, section in ipairs({'server', 'replication', 'persistence', 'memory', 'stats', 'commandstats'}) do
  info[i] = redis.call('INFO', section)
end
local now = redis.call('TIME')
return {
  table.concat(info),
  redis.call('GET', KEYS[1]) or '',
  redis.call('GET', KEYS[2]) or '',
  now[1],
}
