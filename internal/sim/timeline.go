package sim

import "time"

// timeline is a clock that runs at its own rate over the true time and can be
// stepped.
type timeline struct {
	rate  float64 // seconds of this clock in one true second
	since time.Duration
	value time.Duration // at since
}

// at reads the clock at the true time now.
func (t *timeline) at(now time.Duration) time.Duration {
	return t.value + time.Duration(float64(now-t.since)*t.rate)
}

// change gives the clock another value and rate from now on.
func (t *timeline) change(now, value time.Duration, rate float64) {
	t.since, t.value, t.rate = now, value, rate
}
