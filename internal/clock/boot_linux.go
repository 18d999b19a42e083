package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which counts the time a machine was suspended
// (clock_gettime(2)), mostly without asking for it: that is a system call, and
// time.Now is none.
//
// It is ahead of the monotonic clock by an offset that grows when the machine
// wakes up, by as long as it slept. At the same moment, the wall clock gets ahead
// of the monotonic one by as much (Linux, timekeeping_inject_sleeptime): while
// that has not moved, the offset has not either. Only a wall clock that is stepped
// back by as much as the machine slept could hide the sleep, and that for offsetAge
// at most.
type bootTime struct {
	// clocks and boot are the machine's.
	clocks func() clocks
	boot   func() time.Duration

	known atomic.Pointer[bootOffset]
}

// bootOffset is what CLOCK_BOOTTIME is ahead of the monotonic clock when these
// were read.
type bootOffset struct {
	clocks
	offset time.Duration
}

// clocks are the monotonic and the wall clock, each counted from anywhere.
type clocks struct{ mono, wall time.Duration }

// An offset is relied on for offsetAge, and while the wall clock has moved by less
// than offsetStep against the monotonic one; it is not when reading it took
// longer than offsetError. Both are far below the drift that every validity leaves
// for, and the step is above what mostly comes between reading two clocks.
const (
	offsetAge   = 50 * time.Millisecond
	offsetStep  = time.Millisecond
	offsetError = 100 * time.Microsecond
)

// near reports that no more than offsetStep of the wall clock's advance from
// earlier on is a step or a sleep.
func (c clocks) near(earlier clocks) bool {
	step := c.wall - earlier.wall - (c.mono - earlier.mono)
	return -offsetStep < step && step < offsetStep
}

// at returns the reading at now, which was read just before.
func (b *bootTime) at(now clocks) time.Duration {
	if k := b.known.Load(); k != nil && now.mono-k.mono < offsetAge && now.mono >= k.mono && now.near(k.clocks) {
		return now.mono + k.offset
	}
	return b.read()
}

// read asks for the time, and notes the offset if nothing came between the
// readings.
func (b *bootTime) read() time.Duration {
	before := b.clocks()
	boot := b.boot()
	after := b.clocks()
	if after.mono-before.mono < offsetError && after.near(before) {
		b.known.Store(&bootOffset{clocks: after, offset: boot - after.mono})
	}
	return boot
}

// origin is where monotonic readings are counted from.
var origin = time.Now()

func clocksAt(t time.Time) clocks {
	return clocks{mono: t.Sub(origin), wall: time.Duration(t.UnixNano())}
}

var systemBoot = &bootTime{
	clocks: func() clocks { return clocksAt(time.Now()) },
	boot:   Boot,
}

func boot(now time.Time) time.Duration { return systemBoot.at(clocksAt(now)) }

// Boot asks the machine for the clock of Instant.Boot, which costs a system call:
// for a deadline that another process is to know.
func Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return wall(time.Now())
	}
	return time.Duration(ts.Nano())
}
