-- The first in line may have left a bid with its place: then the record goes to it in this
-- very step, for the short TTL that it bids, and it learns by the message so, and from whom it
-- may take over what is on other nodes. Where it does not listen any more nothing is granted.
if ours and not waiter and string.byte(seen[2]) == 61 and (not FENCED or seen[4] == AGREEMENT) then
  local who = string.sub(seen[2], 2)
  local side = string.sub(KEYS[3], 1, -#KEYS[1] - 6)
  local line, beats = side .. 'line:' .. KEYS[1], side .. 'beat:' .. KEYS[1]
  -- Whatever is wrong with these keys, the holder wants its lock released.
  local offered = side .. 'bid:' .. KEYS[1] .. '/' .. who
  local bid = redis.pcall('GET', offered)
  local places = type(bid) == 'string' and redis.pcall('ZRANGE', line, 0, 1) or {}
  if places[1] == who then
    local ttl, id = string.match(bid, '^(%d+) (.*)$')
    local now = redis.call('TIME')
    local counter = string.format('%.0f', math.max(now[1] * 1000000 + now[2], (tonumber(seen[3]) or 0) + 1))
    local other = places[2]
    local told, refused
    if not redis.pcall('PSETEX', KEYS[2], ARGV[4], counter).err and not redis.pcall('SET', KEYS[1], id, 'PX', ttl).err then
      told, refused = publish(KEYS[1], who, from or '', counter .. (other and '+' or ''), id)
    end
    if told and not refused then
      if other then
        redis.call('DEL', offered)
        redis.call('ZREM', line, who)
        redis.call('ZREM', beats, who)
        redis.call('SET', KEYS[3], string.byte(other) == 45 and '-' or '=' .. other, 'PX', PATIENCE)
      else
        redis.call('DEL', offered, KEYS[3], line, beats)
      end
      return 2
    end
  end
end
