// Package clock reads the two clocks that a lock's deadline is compared with, and starts the timers
// that watch it.
//
// Go's monotonic clock stands still while a machine sleeps (golang/go#24595), so a process that
// wakes up would go on believing in a lock whose keys expired long ago. A second clock, which runs
// through suspend, is therefore read beside it. A deadline has passed as soon as either clock says
// so.
package clock

import "time"

// Instant is one moment on both clocks. The zero Instant is long past.
type Instant struct {
	// rule: monotonic-deadline

	// Mono carries Go's monotonic reading and must keep it: no UTC, no
	// Round(0), no marshalling, or a step of the wall clock would move it.
	Mono time.Time
	// Boot is the reading of the clock that runs through suspend, counted from
	// an arbitrary start.
	Boot time.Duration
}

// Add returns the instant d later on both clocks.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{Mono: i.Mono.Add(d), Boot: i.Boot + d}
}

// Since returns the time from start to i, on the clock that counted more.
func (i Instant) Since(start Instant) time.Duration {
	return max(i.Mono.Sub(start.Mono), i.Boot-start.Boot)
}

// Until returns the time from i to deadline, on the clock that leaves less.
func (i Instant) Until(deadline Instant) time.Duration {
	// rule: either-clock
	return min(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)
}

// Reached reports whether deadline has passed at i on either clock.
func (i Instant) Reached(deadline Instant) bool { return i.Until(deadline) <= 0 }

// Timer is a pending call made by Clock.AfterFunc.
type Timer interface {
	// Stop prevents the call, and reports whether it did.
	Stop() bool
	// Reset makes the call happen d from now.
	Reset(d time.Duration) bool
}

// Clock is a machine's idea of time. Implementations are safe for concurrent
// use.
type Clock interface {
	// Now reads both clocks.
	Now() Instant
	// Mono reads the monotonic clock alone, which costs less.
	Mono() time.Time
	// Wall reads the wall clock, which orders fencing tokens and nothing else.
	Wall() time.Time
	// AfterFunc calls f on its own goroutine after d of monotonic time.
	AfterFunc(d time.Duration, f func()) Timer
}

// System is the machine's own clock.
var System Clock = system{}

type system struct{}

func (system) Now() Instant {
	now := time.Now()
	return Instant{Mono: now, Boot: boot(now)}
}

func (system) Mono() time.Time { return time.Now() }

func (system) Wall() time.Time { return time.Now() }

func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
