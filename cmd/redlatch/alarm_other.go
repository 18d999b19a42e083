//go:build unix && !linux

package main

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// tick is how late the alarm may ring after the machine has woken up: timers stand
// still while the machine is suspended.
const tick = 100 * time.Millisecond

// alarm rings at a time on the clock that goes on while the machine is suspended.
type alarm struct {
	times chan time.Duration
	rings chan struct{}
}

// newAlarm makes an alarm that lasts as long as the process.
func newAlarm() (*alarm, error) {
	a := &alarm{times: make(chan time.Duration), rings: make(chan struct{})}
	go func() {
		at := <-a.times
		for {
			left := at - clock.Boot()
			var rings chan struct{}
			if left <= 0 {
				rings, left = a.rings, time.Hour
			}
			select {
			case at = <-a.times:
			case rings <- struct{}{}:
				at = <-a.times
			case <-time.After(min(left, tick)):
			}
		}
	}()
	return a, nil
}

// set replaces the time at which it rings.
func (a *alarm) set(at time.Duration) { a.times <- at }
