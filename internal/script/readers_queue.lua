-- behind reports whether a writer is ahead of a reader, who may have no place in the queue.
local function behind(queue, reader)
  local place = reader ~= '' and redis.call('ZSCORE', queue, reader)
  local ahead
  if place then
    ahead = redis.call('ZRANGE', queue, '-inf', '(' .. place, 'BYSCORE', 'LIMIT', 0, 64)
  else
    ahead = redis.call('ZRANGE', queue, 0, 63)
  end
  for _, waiter in ipairs(ahead) do
    if not reads(waiter) then
      return true
    end
  end
  return #ahead == 64
end

-- placeOf returns the ticket of a reader who comes to the queue: before all where a writer has the
-- key, else behind the first writer.
local function placeOf(queue, holder)
  if holder and not marked(holder) then
    return 1
  end
  for from = 0, 768, 256 do
    local page = redis.call('ZRANGE', queue, from, from + 255)
    for _, waiter in ipairs(page) do
      if not reads(waiter) then
        return redis.call('ZSCORE', queue, waiter) + 1
      end
    end
    if #page < 256 then
      break
    end
  end
end
