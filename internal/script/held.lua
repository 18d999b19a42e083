-- held returns nothing when the key is free; else its holder and the remaining ms.
local function held(key, holder)
  if holder then
    return holder, redis.call('PTTL', key)
  end
end
