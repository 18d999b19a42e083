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
	history *History
	process Process
	attempt *Attempt
	hold    *Hold
	op      *Op
}

func (f *fold) add(e worker.Event) {
	switch e.Kind {
	case worker.Call:
		f.attempt = &Attempt{Name: e.Name, Worker: f.process.Worker, Call: e.T}
	case worker.Fail:
		f.attempt.Why = e.Err
		f.settle(e.T, false)
	case worker.Acquired:
		f.hold = &Hold{
			Name: e.Name, Worker: f.process.Worker, Life: f.process.Life,
			Call: f.attempt.Call, From: e.T, Until: e.Until, Token: e.Token,
		}
		f.settle(e.T, true)
	case worker.Extended:
		f.hold.Until = e.Until
	case worker.Lost:
		f.hold.Lost, f.hold.End = true, e.T
	case worker.Releasing:
		if f.hold.End == 0 {
			f.hold.End = e.T
		}
	case worker.Released:
		f.hold.Released, f.hold.Confirmed = e.T, e.Err == ""
		f.keep()
	case worker.Reading:
		f.op = &Op{Name: e.Name, Worker: f.process.Worker, Call: e.T, Token: e.Token}
	case worker.Writing:
		f.op = &Op{Name: e.Name, Worker: f.process.Worker, Call: e.T, Token: e.Token, Wrote: e.ID}
	case worker.Read, worker.Wrote:
		f.op.End, f.op.Stale, f.op.Read = e.T, e.Stale, e.Guarded
		f.operated()
	}
}

// finish deals with what the end of the process left open.
func (f *fold) finish() {
	if f.attempt != nil {
		f.attempt.Died = f.process.Died
		f.settle(0, false)
	}
	if f.op != nil {
		f.op.Died = f.process.Died
		f.operated()
	}
	if f.hold != nil {
		f.hold.Died = f.process.Died
		f.keep()
	}
}

func (f *fold) settle(at int64, acquired bool) {
	f.attempt.End, f.attempt.Acquired = at, acquired
	switch {
	case f.process.Probe:
		f.history.Probes = append(f.history.Probes, *f.attempt)
	case !acquired:
		f.history.Failed = append(f.history.Failed, *f.attempt)
	}
	f.attempt = nil
}

func (f *fold) operated() {
	if f.op.Token != 0 {
		f.history.Ops = append(f.history.Ops, *f.op)
	}
	f.op = nil
}

func (f *fold) keep() {
	h := f.hold
	f.hold = nil
	for _, end := range []int64{h.Until, h.Died} {
		if end != 0 && (h.End == 0 || end < h.End) {
			h.End = end
		}
	}
	// Acquired with less than no validity, or dead before the log was written.
	h.End = max(h.End, h.From)
	f.history.Holds = append(f.history.Holds, *h)
}
