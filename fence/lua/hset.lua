-- In portions, as Lua hands over some 8000 values in one call. A key that is no
-- hash is refused at the first of them.
for i = 1, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
