-- The usual way where somebody waits: next names the first in the queue. A waiter that has left
-- since passes the wake-up on, and one that cannot be reached is found out by what follows.
if ours and not waiter and string.byte(seen[2]) == 61 then
  local who = string.sub(seen[2], 2)
  if publish(KEYS[1], who, from or '') then
    local now = redis.call('TIME')
    local deadline = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000) + GRACE)
    redis.call('SET', KEYS[3], who .. ' ' .. deadline .. ' ' .. (from or ''), 'PX', PATIENCE)
    return 2
  end
end
