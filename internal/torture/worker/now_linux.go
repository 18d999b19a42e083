package worker

import "golang.org/x/sys/unix"

// Now reads the clock that all processes of the machine share, in ns.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("worker: CLOCK_MONOTONIC: " + err.Error()) // every Linux has it
	}
	return ts.Nano()
}
