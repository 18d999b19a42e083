-- raise stores a counter if it is larger than the one that is there.
local function raise(counter, before, to, ttl)
  if (tonumber(before) or 0) < tonumber(to) then
    redis.call('PSETEX', counter, ttl, to)
  end
end
