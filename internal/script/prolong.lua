-- prolong has a holder's key expire in ttl ms, unless it has more time left. A key that somebody
-- has made persistent would outlive its holder: it expires again, in longest ms, the counter's TTL, since
-- its holder may have more time left than ttl.
local function prolong(key, ttl, longest)
  -- rule: extend-never-shortens
  if redis.call('PEXPIRE', key, ttl, 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, longest)
  end
end
