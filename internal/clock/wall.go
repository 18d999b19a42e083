package clock

import "time"

// wall returns the wall clock as a second clock, without the monotonic reading that time.Time
// arithmetic would prefer.
func wall(now time.Time) time.Duration { return time.Duration(now.UnixNano()) }
