//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/report"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// Run runs the torture and its control run, judges both and returns the report. It blocks until all
// processes that it started are gone: for Options.For, the time of the control run and some
// seconds more. The end of ctx ends it early and in order, with a report on the run so far.
//
// The error says why there is no report. It wraps redlatch.ErrInvalid for options that
// cannot work.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := &report.Report{
		Topology: string(o.Topology), Engine: o.Topology.ensemble(), Seed: o.Seed, Asked: o.For, TTL: o.TTL, Workers: o.Workers, Names: o.resources(), Locks: o.Names, Primitive: o.Primitive, Nodes: o.Nodes,
		Kinds: names(o.chosen), LeftOut: o.left, Yours: len(o.Yours) > 0, Started: time.Now(),
	}
	if len(o.WorkerCommand) > 0 {
		r.Subject = "other"
	} else {
		self, err := spawn.Self(WorkerCommand)
		if err != nil {
			return nil, err
		}
		o.WorkerCommand, r.Subject = self, "redlatch"
	}
	say(o, "torture: %s, seed %d, %d nodes, %d workers, %d locks of %v, for %v", o.Topology, o.Seed, o.Nodes, o.Workers, o.Names, o.TTL, o.For)
	if len(o.primitives) > 0 {
		say(o, "taken: %s", o.primitivesText())
	}
	if o.left != "" {
		say(o, "left out: %s", o.left)
	}
	h, servers, err := round(ctx, o, false)
	if err != nil {
		return nil, err
	}
	r.Servers, r.History = servers, h
	say(o, "judging %d acquisitions", len(h.Holds))
	r.Findings = judge.Judge(h, judging(o.For))
	r.Interrupted = ctx.Err() != nil
	if o.NoControl || r.Interrupted {
		return r, nil
	}
	control := o
	self, err := spawn.Self(WorkerCommand)
	if err != nil {
		return nil, err
	}
	control.WorkerCommand, control.For, control.Keep = self, o.controlFor(), ""
	if o.Topology.alone() && !o.Topology.ensemble() {
		// A key must outlive a failover, however long that takes, so that a forgotten lock shows as an overlap.
		control.TTL = max(o.TTL, controlTTL)
	}
	r.Bug = o.Topology.bug()
	say(o, "the control run, whose lock is broken (%s), for %v", r.Bug, control.For)
	h, _, err = round(ctx, control, true)
	r.Interrupted = ctx.Err() != nil
	switch {
	case err == nil:
		r.Control = judge.Judge(h, judging(control.For))
	case r.Interrupted || len(r.Violations()) > 0: // what the run has shown stands by itself
		say(o, "the control run: %v", err)
	default:
		return nil, fmt.Errorf("the control run: %w", err)
	}
	return r, nil
}

// controlTTL is the shortest TTL of a control run with one node of Redis.
const controlTTL = 6 * time.Second

// controlFor returns how long the control run takes.
func (o *Options) controlFor() time.Duration {
	return min(max(o.For/4, o.Topology.shortestControl()), time.Minute)
}

// judging returns how long porcupine may search in the history of a run that took d.
func judging(d time.Duration) time.Duration { return max(10*time.Second, d/10) }

func say(o Options, format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) }

func names(ks []kind) []string {
	ns := make([]string, len(ks))
	for i, k := range ks {
		ns[i] = string(k)
	}
	return ns
}

// logs makes the directory of the workers' logs. done removes it unless it is to be kept.
func (o *Options) logs() (dir string, done func() error, err error) {
	if o.Keep != "" {
		return o.Keep, func() error { return nil }, os.MkdirAll(o.Keep, 0o755)
	}
	dir, err = os.MkdirTemp("", "redlatch-torture-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// round starts servers and workers, plays a plan and returns its history. When it returns, all
// processes that it started have ended.
func round(ctx context.Context, o Options, control bool) (h *history.History, servers string, err error) {
	dir, done, err := o.logs()
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	g, err := startGround(ctx, o)
	if err != nil {
		return nil, "", fmt.Errorf("the nodes: %w", causeOr(ctx, err))
	}
	defer func() {
		if left := g.clean(o); left != nil && h != nil {
			h.Errors = append(h.Errors, left.Error())
		}
		err = errors.Join(err, g.close())
	}()
	if !o.Topology.ensemble() && (!control && o.ours() || len(o.Yours) > 0) {
		if err := vouch(ctx, &o, g); err != nil {
			return nil, "", causeOr(ctx, err)
		}
	}
	registers, err := startRegisters()
	if err != nil {
		return nil, "", err
	}
	defer registers.close()
	c, err := startWorkers(ctx, o, g, dir, registers.addr(), control)
	if err != nil {
		return nil, "", causeOr(ctx, err)
	}
	h = &history.History{TTL: o.TTL, Kept: o.Topology.kept(o.TTL), Drift: drift(o.TTL), Nodes: o.Nodes, Workers: o.Workers, Names: o.resources(), Slots: o.slots(), Parts: o.parts()}
	if g.node != nil {
		h.Labels = g.node.labels()
		h.Nodes = len(h.Labels)
	}
	t := &torturer{ground: g, workers: c, registers: registers, options: o, resting: make(chan struct{}, 1), records: make(chan struct{}, 1)}
	h.Start = worker.Now()
	c.tell(worker.Go)
	say(o, "the workers work")
	s := o.setting(control)
	t.tail = s.tail()
	t.play(ctx, o, s.plan())
	h.End = worker.Now()
	h.Errors = append(t.errs, c.dismiss()...)
	h.Faults, h.Looks, h.Writes, h.Refusals = t.faults, t.looks, registers.close(), t.refusals
	for _, p := range append(c.processes(), t.guests.processes()...) {
		if err := h.Add(p); err != nil {
			return nil, "", err
		}
	}
	h.Sort()
	return h, g.kind, nil
}

// play carries out the plan and blocks until the time is over, all faults are
// undone, and all looks have ended.
func (t *torturer) play(ctx context.Context, o Options, plan []item) {
	start := time.Now()
	t.start = start
	ctx, cancel := context.WithDeadline(ctx, start.Add(o.For))
	defer cancel()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		t.watch(ctx)
	}()
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		t.lookOften(ctx)
	}()
	telling := make(chan struct{})
	go func() {
		defer close(telling)
		for wait(ctx, tellEvery) {
			t.mu.Lock()
			n := len(t.faults)
			t.mu.Unlock()
			say(o, "%5.0f s: %d faults so far", time.Since(start).Seconds(), n)
		}
	}()
	t.carryOut(ctx, plan, start)
	<-ctx.Done()
	<-looking
	<-watching
	<-telling
}

const tellEvery = 10 * time.Second

// causeOr returns the cause of ctx if ctx is done, since that ended the call, else err.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
