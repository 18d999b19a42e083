package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/torture/worker"
)

// Process is one caller of a worker process.
type Process struct {
	Worker, Life int
	Log          string // the path of the log
	TTL          time.Duration
	Died         int64 // when the process was killed or found dead, or 0 if it ended in order
	Probe        bool
}

// Add adds what the log of a process's caller says.
func (h *History) Add(p Process) error {
	f := fold{history: h, process: p}
	if err := worker.ReadEvents(p.Log, f.add); err != nil {
		return err
	}
	f.finish()
	return nil
}

// Sort sorts what was added by time.
func (h *History) Sort() {
	slices.SortFunc(h.Holds, func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
	slices.SortFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.Began, b.Began) })
	slices.SortFunc(h.Failed, func(a, b Attempt) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(h.Probes, func(a, b Attempt) int { return cmp.Compare(a.Call, b.Call) })
}

// fold makes attempts, holds and operations of one caller's events, which come in order.
type fold struct {
	history  *History
	process  Process
	attempts []Attempt // of the present call, one for each of its names
	holds    []Hold    // of the lock that is held, one for each of its names
	op       *Op       // the present operation on the registers, or nil
}

// add takes the next event.
func (f *fold) add(e worker.Event) {
	switch e.Kind {
	case worker.Call:
		for i, name := range append([]string{e.Name}, e.With...) {
			f.attempts = append(f.attempts, Attempt{Name: name, Worker: f.process.Worker, Call: e.T, Further: i > 0})
		}
	case worker.Fail:
		f.settle(e.T, e.Err, false)
	case worker.Acquired:
		call := f.attempts[0].Call
		for i, name := range append([]string{e.Name}, e.With...) {
			f.holds = append(f.holds, Hold{
				Name: name, Worker: f.process.Worker, Life: f.process.Life,
				Call: call, From: e.T, Sent: max(call, e.Until-int64(f.process.TTL)), Until: e.Until,
				Token: e.Token, Shared: e.Shared, Further: i > 0,
			})
		}
		f.settle(e.T, "", true)
	case worker.Released:
		f.change(e)
		f.keep()
	case worker.Extended, worker.Lost, worker.Releasing:
		f.change(e)
	case worker.Reading:
		f.op = &Op{Name: e.Name, Worker: f.process.Worker, Call: e.T, Token: e.Token, Shared: e.Shared}
	case worker.Writing:
		f.op = &Op{Name: e.Name, Worker: f.process.Worker, Call: e.T, Token: e.Token, Wrote: e.ID}
	case worker.Read, worker.Wrote:
		f.op.End, f.op.Stale, f.op.Read = e.T, e.Stale, e.Guarded
		f.operated()
	}
}

// change applies an event to the holds of all names of the lock.
func (f *fold) change(e worker.Event) {
	for i := range f.holds {
		switch h := &f.holds[i]; e.Kind {
		case worker.Extended:
			h.Until = e.Until
		case worker.Lost:
			h.Lost, h.End = true, e.T
		case worker.Releasing:
			if h.End == 0 {
				h.End = e.T
			}
		case worker.Released:
			h.Released, h.Confirmed = e.T, e.Err == ""
		}
	}
}

// finish adds what was not over when the process ended.
func (f *fold) finish() {
	for i := range f.attempts {
		f.attempts[i].Died = f.process.Died
	}
	f.settle(0, "", false)
	if f.op != nil {
		f.op.Died = f.process.Died
		f.operated()
	}
	for i := range f.holds {
		f.holds[i].Died = f.process.Died
	}
	f.keep()
}

// settle adds the attempts of the present call, which ended at a time, or never if that is 0.
func (f *fold) settle(at int64, why string, acquired bool) {
	for _, a := range f.attempts {
		a.End, a.Why, a.Acquired = at, why, acquired
		switch {
		case f.process.Probe:
			f.history.Probes = append(f.history.Probes, a)
		case !acquired:
			f.history.Failed = append(f.history.Failed, a)
		}
	}
	f.attempts = nil
}

// operated adds the present operation if it was on a guarded register, which needs a token.
func (f *fold) operated() {
	if f.op.Token != 0 {
		f.history.Ops = append(f.history.Ops, *f.op)
	}
	f.op = nil
}

// keep adds the holds of the present lock. Each ends no later than its validity and its worker.
func (f *fold) keep() {
	for _, h := range f.holds {
		for _, end := range []int64{h.Until, h.Died} {
			if end != 0 && (h.End == 0 || end < h.End) {
				h.End = end
			}
		}
		// End may be before From: the validity had already ended, or the worker was killed just after it wrote.
		h.End = max(h.End, h.From)
		f.history.Holds = append(f.history.Holds, h)
	}
	f.holds = nil
}
