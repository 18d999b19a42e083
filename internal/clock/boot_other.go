//go:build !linux

package clock

import "time"

// boot is the wall clock: it runs through suspend everywhere. When it is
// stepped forward a lock is believed lost too early, which is the safe side.
func boot(now time.Time) time.Duration { return wall(now) }

// Boot reads the clock of Instant.Boot, for a deadline that another process is to
// know.
func Boot() time.Duration { return wall(time.Now()) }
