package sim

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
)

// setStall has each statement of the library call f first, where it was built for that; else nil.
var setStall func(f func())

// Anywhere has goroutines of the library stand still at any of its statements, where it was built so
// that each calls a function first (stall_test.go). Nothing else may run in the process then but
// this one world. It lasts until end is called.
func (w *World) Anywhere(p *Plan) (end func()) {
	if setStall == nil {
		panic("sim: the library was not built to stand still")
	}
	draw := w.Rand("anywhere")
	longest := []time.Duration{p.NodeTimeout, p.TTL / 2, 2 * p.TTL}[draw.IntN(3)]
	often := 20 + draw.IntN(400) // of a million statements
	var drawing atomic.Bool
	stand := func(d time.Duration) {
		until := w.Now() + d
		w.stalledUntil.Store(max(w.stalledUntil.Load(), int64(until)))
		for _, m := range w.all {
			for _, way := range m {
				way.disturb(until)
			}
		}
		w.History.Add("library", "a goroutine stands still for %v", d)
		time.Sleep(d)
	}
	setStall(func() {
		if asking.Load() > 0 || w.quiet.Load() || !drawing.CompareAndSwap(false, true) {
			return
		}
		likely := often
		if p.Weather == Silent && w.afterGrant.Add(-1) > 0 {
			likely = 1_000_000 / afterGrant
		}
		stalls, d := draw.IntN(1_000_000) < likely, between(draw, 0, longest)
		drawing.Store(false)
		if stalls {
			stand(d)
		}
	})
	return func() { setStall(func() {}) }
}

// afterGrant is how many statements of the library follow a grant that was heard, until its caller holds
// the lock or does not.
const afterGrant = 400

// moment is when something is told. It is read first: who tells the judge may wait for another who does.
type moment struct {
	now   time.Duration
	clock clock.Instant // of the machine
	// stood is until when the process, or one of its goroutines, stood still last: now where it does, and
	// where it is no more.
	stood time.Duration
}

func (m *Machine) moment() moment {
	w := m.world
	at := moment{now: w.Now(), clock: m.clock.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	at.stood = max(m.stopped, m.stalled, time.Duration(w.stalledUntil.Load()))
	if m.paused != nil || m.dead {
		at.stood = at.now
	}
	return at
}

// longestUntold is how long after the end of a lock its holder may be told: the library sees that a machine
// has slept within a quarter of a second.
const longestUntold = 300 * time.Millisecond

// inTime checks that a holder whose lock has run out is told then: not when somebody looks, nor when it gives the
// lock up. The caller holds judge.mu.
func (h *Holding) inTime(at moment) {
	if h.told || h.ended {
		return
	}
	since := at.now + min(0, at.clock.Until(h.lease.End()))
	if late := at.now - max(since, at.stood, h.acquired); late > longestUntold {
		h.judge.condemn("a loss is told in time: %s is not told that %s ran out until %v later", h.label, h.name, late)
	}
}

// asking is not 0 while a judge asks leases, which is not to stand still.
var asking atomic.Int32

// asked is a lease that a judge asks.
type asked struct{ lease hook.Lease }

func (l asked) Deadline() clock.Instant { return quietly(l.lease.Deadline) }
func (l asked) End() clock.Instant      { return quietly(l.lease.End) }
func (l asked) Token() uint64           { return quietly(l.lease.Token) }
func (l asked) Err() error              { return quietly(l.lease.Err) }
func (l asked) HolderID() string        { return quietly(l.lease.HolderID) }

// quietly asks without a stall.
func quietly[T any](ask func() T) T {
	asking.Add(1)
	defer asking.Add(-1)
	return ask()
}
