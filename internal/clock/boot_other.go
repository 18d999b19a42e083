//go:build !linux

package clock

import "time"

// boot returns the wall clock, which runs through suspend everywhere. When it is stepped forward a
// lock is believed lost too early, which is the safe side.
func boot(now time.Time) time.Duration { return wall(now) }

// Boot reads the clock of Instant.Boot. It is for a deadline that another process must know.
func Boot() time.Duration { return wall(time.Now()) }
