package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// boot reads CLOCK_BOOTTIME, which counts the time a machine was suspended
// (clock_gettime(2)).
func boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return wall()
	}
	return time.Duration(ts.Nano())
}
