package history

import (
	"cmp"
	"slices"

	"github.com/redlatch/redlatch/internal/torture/worker"
)

// Process is the log of one of a worker process's callers and, unless it ended in order, when it was
// killed.
type Process struct {
	Worker, Life int
	Log          string
	Died         int64
	Probe        bool
}

// Add reads what one process wrote down.
func (h *History) Add(p Process) error {
	f := fold{history: h, process: p}
	if err := worker.ReadEvents(p.Log, f.add); err != nil {
		return err
	}
	f.finish()
	return nil
}

// Sort puts what was added into order.
func (h *History) Sort() {
	slices.SortFunc(h.Holds, func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
	slices.SortFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.Began, b.Began) })
	slices.SortFunc(h.Failed, func(a, b Attempt) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(h.Probes, func(a, b Attempt) int { return cmp.Compare(a.Call, b.Call) })
}

// fold makes holds and operations of one process's events, which come in order.
type fold struct {
	history  *History
	process  Process
	attempts []Attempt // of each name that is called for, all of one call
	holds    []Hold    // of each name that is held, all of one lock
	op       *Op
}

func (f *fold) add(e worker.Event) {
	switch e.Kind {
	case worker.Call:
		for i, name := range append([]string{e.Name}, e.With...) {
			f.attempts = append(f.attempts, Attempt{Name: name, Worker: f.process.Worker, Call: e.T, Further: i > 0})
		}
	case worker.Fail:
		f.settle(e.T, e.Err, false)
	case worker.Acquired:
		for i, name := range append([]string{e.Name}, e.With...) {
			f.holds = append(f.holds, Hold{
				Name: name, Worker: f.process.Worker, Life: f.process.Life,
				Call: f.attempts[0].Call, From: e.T, Until: e.Until, Token: e.Token, Shared: e.Shared, Further: i > 0,
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

// change applies an event to all that is held.
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

// finish deals with what the end of the process left open.
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

func (f *fold) operated() {
	if f.op.Token != 0 {
		f.history.Ops = append(f.history.Ops, *f.op)
	}
	f.op = nil
}

func (f *fold) keep() {
	for _, h := range f.holds {
		for _, end := range []int64{h.Until, h.Died} {
			if end != 0 && (h.End == 0 || end < h.End) {
				h.End = end
			}
		}
		// Acquired with less than no validity, or dead before the log was written.
		h.End = max(h.End, h.From)
		f.history.Holds = append(f.history.Holds, h)
	}
	f.holds = nil
}
