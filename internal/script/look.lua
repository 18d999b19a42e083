-- Reads keys as MGET does, but of each value only the beginning. Changes nothing.
local values = redis.call('MGET', unpack(KEYS))
for i, value in ipairs(values) do
  values[i] = value and string.sub(value, 1, SHOWN)
end
return values
