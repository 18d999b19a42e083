-- A name's permits have one queue, whose key is 'redlatch:{tag}:permit::name'; nothing is stored there.
-- Each permit is a slot, whose key, 'redlatch:{tag}:permit:3:name', is a lock's like any other.

-- slots returns the keys of the first k slots.
local function slots(key, k)
  local _, at = string.find(key, '}:permit:', 1, true)
  local head, tail = string.sub(key, 1, at), string.sub(key, at + 1)
  local keys = {}
  for i = 1, k do
    keys[i] = head .. (i - 1) .. tail
  end
  return keys
end

-- held returns nothing when one of the k slots is free; else the holder of the one that may expire
-- first, and in how many ms.
local function held(key, _, k)
  local keys, holder, least = slots(key, tonumber(k)), nil, nil
  for i, value in ipairs(redis.call('MGET', unpack(keys))) do
    if not value then
      return nil
    end
    local left = redis.call('PTTL', keys[i])
    if not least or left >= 0 and (least < 0 or left < least) then
      holder, least = value, left
    end
  end
  return holder and string.sub(holder, 1, SHOWN), least
end
