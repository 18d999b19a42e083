package clock

import "time"

// awake is the clock of a machine that never sleeps.
type awake struct {
	Clock
	start time.Time
}

// Awake returns a clock with one time, which may be virtual: the clock that runs while a machine
// sleeps never is.
func Awake() Clock { return awake{System, time.Now()} }

func (a awake) Now() Instant {
	now := time.Now()
	return Instant{Mono: now, Boot: now.Sub(a.start)}
}
