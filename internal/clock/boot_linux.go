package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which counts the time a machine was suspended (clock_gettime(2)).
// Mostly it does so without asking for it: asking is a system call, and time.Now is none.
//
// CLOCK_BOOTTIME is ahead of the monotonic clock by an offset that grows when the machine wakes up,
// by as long as it slept. At the same moment the wall clock gets ahead of the monotonic one by as
// much (Linux, timekeeping_inject_sleeptime). While that has not happened, the offset has not
// changed either. Only a wall clock that is stepped back by as much as the machine slept could hide
// the sleep, and for offsetAge at most.
type bootTime struct {
	// clocks and boot read the machine's clocks.
	clocks func() clocks
	boot   func() time.Duration

	known atomic.Pointer[bootOffset]
}

// bootOffset is by how much CLOCK_BOOTTIME was ahead of the monotonic clock when the clocks were
// read.
type bootOffset struct {
	clocks
	offset time.Duration
}

// clocks are readings of the monotonic and the wall clock, each counted from an arbitrary start.
type clocks struct{ mono, wall time.Duration }

// An offset is relied on for offsetAge, and while the wall clock has moved by less than offsetStep
// against the monotonic one. An offset whose reading took offsetError or longer is not kept.
// offsetStep and offsetError are far below the drift that every validity leaves room for, and
// offsetStep is more than what usually passes between two readings.
const (
	offsetAge   = 50 * time.Millisecond
	offsetStep  = time.Millisecond
	offsetError = 100 * time.Microsecond
)

// near reports whether less than offsetStep of the wall clock's advance since earlier is a step or
// a sleep.
func (c clocks) near(earlier clocks) bool {
	step := c.wall - earlier.wall - (c.mono - earlier.mono)
	return -offsetStep < step && step < offsetStep
}

// at returns CLOCK_BOOTTIME at now, which was read just before.
func (b *bootTime) at(now clocks) time.Duration {
	if k := b.known.Load(); k != nil && now.mono-k.mono < offsetAge && now.mono >= k.mono && now.near(k.clocks) {
		return now.mono + k.offset
	}
	return b.read()
}

// read asks for the time, and keeps the offset if nothing came between the readings.
func (b *bootTime) read() time.Duration {
	before := b.clocks()
	boot := b.boot()
	after := b.clocks()
	if after.mono-before.mono < offsetError && after.near(before) {
		b.known.Store(&bootOffset{clocks: after, offset: boot - after.mono})
	}
	return boot
}

// origin is the time from which monotonic readings are counted.
var origin = time.Now()

func clocksAt(t time.Time) clocks {
	return clocks{mono: t.Sub(origin), wall: time.Duration(t.UnixNano())}
}

var systemBoot = &bootTime{
	clocks: func() clocks { return clocksAt(time.Now()) },
	boot:   Boot,
}

func boot(now time.Time) time.Duration { return systemBoot.at(clocksAt(now)) }

// Boot asks the machine for the clock of Instant.Boot, which costs a system call. It is for a
// deadline that another process must know.
func Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return wall(time.Now())
	}
	return time.Duration(ts.Nano())
}
