-- While readers have a key, its value is 'redlatch:shared ' and the counter under which the first
-- of them was granted it, and it expires when the last of them does. Beside it is the set of
-- readers, each with the time in ms at which its hold ends here.

-- instant returns the time in ms by which these holds end: the last ends when the key expires. It is not the
-- server's, now, where both came from a server with another clock, as when a Cluster's slot is moved. lasts is
-- false where somebody has made the key persistent, and all holds have ended.
local function instant(key, readers, now)
  local last, left = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2], redis.call('PTTL', key)
  local lasts = left >= 0 or last and tonumber(last) > now
  return last and left >= 0 and tonumber(last) - left or now, lasts
end

-- opened returns the counter under which readers have the key, nil where they do not.
local function opened(holder)
  local under = string.match(holder or '', '^redlatch:shared (%d+)$')
  return under and tonumber(under)
end

-- ends returns when a reader's hold ends; 0 where it has none.
local function ends(readers, id)
  return tonumber(redis.call('ZSCORE', readers, id)) or 0
end

-- share gives a reader a hold of ttl ms on a key that readers have. It shortens nothing.
local function share(key, readers, id, ttl, now)
  -- rule: extend-never-shortens
  redis.call('ZADD', readers, math.max(ends(readers, id), now + ttl), id)
  local lapsed = redis.call('ZRANGE', readers, '-inf', now, 'BYSCORE', 'LIMIT', 0, 256)
  if #lapsed > 0 then
    redis.call('ZREM', readers, unpack(lapsed))
  end
  -- rule: marker-lasts-longest
  redis.call('PEXPIRE', key, ttl, 'GT')
  local left = redis.call('PTTL', key)
  if left < 0 then -- somebody has made it persistent: it ends with the last reader again
    left = tonumber(redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]) - now
    redis.call('PEXPIRE', key, left)
  end
  redis.call('PEXPIRE', readers, left)
end
