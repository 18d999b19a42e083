-- An absent key ends the answer here: not every client tells a nil in an array.
return redis.call('GET', KEYS[1]) or nil
