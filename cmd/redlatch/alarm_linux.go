package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm rings at a time on the clock that goes on while the machine is suspended. If
// the machine wakes up after that time, it rings at once (timerfd_create(2),
// CLOCK_BOOTTIME).
type alarm struct {
	fd    int
	rings chan struct{}
}

// newAlarm makes an alarm that lasts as long as the process.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{fd: fd, rings: make(chan struct{})}
	go func() {
		timer := os.NewFile(uintptr(fd), "timerfd")
		for count := make([]byte, 8); ; {
			if _, err := timer.Read(count); err != nil {
				return
			}
			a.rings <- struct{}{}
		}
	}()
	return a, nil
}

// set replaces the time at which it rings.
func (a *alarm) set(at time.Duration) {
	// 1 ns is in the past, whereas 0 would turn the timer off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, at.Nanoseconds()))}
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}
