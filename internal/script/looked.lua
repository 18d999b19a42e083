-- isStill reports whether the server is that run, with that replication id, and a master.
local function isStill(run, id)
  local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
  return string.find(info, 'run_id:' .. run, 1, true) and string.find(info, 'master_replid:' .. id, 1, true)
    and string.find(info, 'role:master', 1, true)
end

-- flushes returns how often all keys were deleted, and the statistics of that reset.
local function flushes()
  local stats = redis.call('INFO', 'commandstats')
  local function count(command) return string.match(stats, 'cmdstat_' .. command .. ':([^,\r]*)') end
  local reset = count('config|resetstat')
  return (count('flushall') or '') .. '+' .. (count('flushdb') or '') .. (reset and '+' .. reset or '')
end

-- said returns what the admission key says, but for the time at its end; '' where it says nothing.
local function said(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and string.sub(value, 1, -18) or ''
end
