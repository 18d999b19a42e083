package clock

import "time"

// wall is the wall clock as a second clock, without the monotonic reading that
// time.Time arithmetic would prefer.
func wall() time.Duration { return time.Duration(time.Now().UnixNano()) }
