-- admitted reports whether this is still the server that was admitted and that this client has
-- examined. said is the admission key's value: an agreement, a run, its replication id, and when
-- that was last looked at, in µs. expected is the first three as the client found them, or ''
-- before it has; a key shorter than a stamp must not match that.
-- A key that came from another master differs. One that a replica has given back to a master that
-- was its replica meanwhile does not, but the master then has another replication id. Being
-- demoted, loading a master's data and being promoted takes longer than FRESH.
-- A Cluster's client follows a slot by itself to a server that may have been promoted a moment ago:
-- there FRESH is negative.
local function admitted(key, said, expected, now)
  -- rule: admission-names-its-server
  if not said or expected == '' or string.sub(said, 1, -18) ~= expected then
    return false
  end
  local clock = now[1] * 1000000 + now[2]
  local age = clock - (tonumber(string.sub(said, -16)) or 0)
  -- rule: replication-id
  if age < 0 or age > FRESH then
    local info = redis.call('INFO', 'replication')
    if not string.find(info, 'role:master', 1, true)
      or not string.find(info, 'master_replid:' .. string.sub(expected, -40), 1, true) then
      return false
    end
    if age < 0 or age > RENEW then
      -- A server that is out of memory refuses this. It must not end the step: an extension takes no
      -- memory. Until the time is stored, each step looks.
      redis.pcall('SET', key, expected .. ' ' .. string.format('%016.0f', clock))
    end
  end
  return true
end
