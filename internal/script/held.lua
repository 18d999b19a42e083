-- held returns nothing when the key is free; else its holder and the remaining ms.
local function held(key, holder)
  if holder then
    return string.sub(holder, 1, SHOWN), redis.call('PTTL', key)
  end
end
