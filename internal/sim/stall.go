package sim

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
)

// Anywhere has goroutines of the library stand still at any of its statements, where it was built so
// that each calls stall first (stall_test.go). Of a million statements, often is how many do, for
// up to longest. Nothing else may run in the process then but this one world.
func (w *World) Anywhere(often int, longest time.Duration) (stall func()) {
	draw := w.Rand("anywhere")
	var drawing atomic.Bool
	return func() {
		if asking.Load() > 0 || w.quiet.Load() || !drawing.CompareAndSwap(false, true) {
			return
		}
		stalls, d := draw.IntN(1_000_000) < often, between(draw, 0, longest)
		drawing.Store(false)
		if !stalls {
			return
		}
		until := w.Now() + d
		w.stalledUntil.Store(max(w.stalledUntil.Load(), int64(until)))
		for _, m := range w.all {
			for _, p := range m {
				p.disturb(until)
			}
		}
		w.History.Add("library", "a goroutine stands still for %v", d)
		time.Sleep(d)
	}
}

// asking is not 0 while a judge asks leases, which is not to stand still.
var asking atomic.Int32

// asked is a lease that a judge asks.
type asked struct{ lease hook.Lease }

func (l asked) Deadline() clock.Instant {
	asking.Add(1)
	defer asking.Add(-1)
	return l.lease.Deadline()
}

func (l asked) End() clock.Instant {
	asking.Add(1)
	defer asking.Add(-1)
	return l.lease.End()
}

func (l asked) Token() uint64 {
	asking.Add(1)
	defer asking.Add(-1)
	return l.lease.Token()
}

func (l asked) Err() error {
	asking.Add(1)
	defer asking.Add(-1)
	return l.lease.Err()
}

func (l asked) HolderID() string {
	asking.Add(1)
	defer asking.Add(-1)
	return l.lease.HolderID()
}
