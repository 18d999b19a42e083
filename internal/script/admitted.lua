-- admitted reports whether this is still the server that was admitted and that this client has
-- examined. said is the admission key's value: an agreement, a run, its replication id, and a stamp,
-- the time in µs at which that id was last looked at. expected is the first three as the client found
-- them, or '' before it has examined a server: that admits nobody, whatever the key has.
-- A key that came from another master has another run. A master that was made a replica and a master
-- again may get its own key back from its replica: that key is the same, but the server now has
-- another replication id. The change there and back takes longer than FRESH, so an id that was looked
-- at more recently than that is not looked at again. In a Cluster it always is, by a negative FRESH:
-- a client follows a slot by itself to a server that may have been promoted a moment ago.
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
    -- The next master of a slot has all that it came with if it has been up since before that time. So the time is not stored
    -- amid a move: what was moved before that may be lost there.
    -- rule: not-renewed-amid-a-move
    if (age < 0 or age > RENEW) and not (FRESH < 0 and moveError(key)) then
      -- A server that is out of memory refuses this. It must not end the step: an extension takes no
      -- memory. Until the time is stored, each step looks.
      redis.pcall('SET', key, expected .. ' ' .. string.format('%016.0f', clock))
    end
  end
  return true
end
