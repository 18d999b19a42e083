//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// torturer carries out a plan. It undoes every fault, even if ctx ends during the fault.
type torturer struct {
	ground    *ground
	workers   workers
	registers *registers
	options   Options
	acting    sync.WaitGroup
	resting   chan struct{} // holds one token while the workers are told to rest
	records   chan struct{} // holds one token while the nodes' records of the deployment change, or are relied on
	start     time.Time
	tail      time.Duration // at the end of the run, without faults

	mu     sync.Mutex // guards what follows; never held while anything waits
	faults []history.Fault
	looks  []history.Look
	errs   []string
	// guests are the further workers that became ready. invited counts all that were started.
	guests  workers
	invited int
	// refusals counts how often strangers were refused.
	refusals int
}

// carryOut begins each item of the plan at its time, and blocks until all are over. The end of ctx ends
// it early.
func (t *torturer) carryOut(ctx context.Context, plan []item, start time.Time) {
	defer t.acting.Wait()
	for i, it := range plan {
		if !wait(ctx, time.Until(start.Add(it.at))) {
			return
		}
		t.acting.Go(func() {
			if it.part > 0 {
				t.strike(ctx, i+1, it)
			} else {
				t.one(ctx, i+1, it)
			}
		})
	}
}

// one carries out an item of a node that is a single server, or of a worker. It first takes the
// turns of all nodes and workers concerned, since each may have only one fault at a time.
func (t *torturer) one(ctx context.Context, id int, it item) {
	f := history.Fault{ID: id, Kind: string(it.kind), Split: it.kind == split, Detail: it.detail()}
	var turns []chan struct{}
	nodes := make([]*place, len(it.nodes))
	for i, n := range slices.Sorted(slices.Values(it.nodes)) {
		nodes[i] = t.ground.nodes[n]
		f.Nodes = append(f.Nodes, n+1)
		if it.kind != split {
			turns = append(turns, nodes[i].turn)
		}
	}
	workers := make([]*workerState, len(it.workers))
	for i, w := range slices.Sorted(slices.Values(it.workers)) {
		workers[i] = t.workers[w]
		f.Workers = append(f.Workers, w+1)
		turns = append(turns, workers[i].turn)
	}
	if it.kind == split {
		for w := int(it.side); w < t.options.Workers; w += 2 {
			f.Workers = append(f.Workers, w+1)
		}
	}
	if t.unsettles(it.kind) {
		turns = append(turns, t.records)
	}
	for i, turn := range turns {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			for _, taken := range turns[:i] {
				<-taken
			}
			return
		}
	}
	defer func() {
		for _, turn := range turns {
			<-turn
		}
	}()

	for _, w := range workers {
		t.replace(ctx, w)
	}
	f.Began = worker.Now()
	undo, err := t.begin(ctx, it, nodes, workers)
	if err == nil {
		if it.step != 0 {
			f.Step = it.step
		}
		if it.aim != anywhere || it.kind == stranger {
			f.Began = worker.Now() // the wait for the moment is not part of the fault
		}
		wait(ctx, it.for_)
	}
	if undo != nil {
		err = errors.Join(err, undo())
	}
	f.Ended = worker.Now()
	if it.out > 0 {
		f.Out = f.Ended + int64(it.out-it.for_)
	}
	if it.kind == killNode && !t.options.Topology.alone() {
		// The plan assumes that the node still has its data and votes soon. Clients make it wait for the
		// quarantine nevertheless.
		f.Out += int64(quarantine(t.options.TTL))
	}
	for _, p := range nodes {
		if traits[it.kind].forgets {
			p.forgot = max(p.forgot, f.Out)
		}
	}
	t.note(f, err)
}

// note adds a fault to the history. A fault that was left out is only printed.
func (t *torturer) note(f history.Fault, err error) {
	if errors.Is(err, errLeftOut) {
		say(t.options, "fault %d, %s, %v", f.ID, f.Kind, err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		f.Err = err.Error()
		t.errs = append(t.errs, fmt.Sprintf("fault %d, %s: %v", f.ID, f.Kind, err))
	}
	t.faults = append(t.faults, f)
}

// errLeftOut says that a fault could not begin, and so is not in the history.
var errLeftOut = errors.New("left out")

// unsettles reports whether the nodes may have no valid record of the deployment for a while after a
// fault of the kind: a majority of them, or the only one, loses its record or gets another one.
func (t *torturer) unsettles(k kind) bool {
	switch k {
	case blackout, setAll:
		return true
	case wipeNode, flush, setOne:
		return t.options.Topology.alone()
	}
	return false
}

// begin has the fault take effect and returns the function that ends it. If begin fails half-way, undo
// ends what had begun, unless it is nil.
func (t *torturer) begin(ctx context.Context, it item, nodes []*place, workers []*workerState) (undo func() error, err error) {
	quiet := func(f func()) func() error { return func() error { f(); return nil } }
	// A fault is undone even if ctx has ended.
	always := context.WithoutCancel(ctx)
	switch it.kind {
	case killNode, wipeNode, blackout:
		each(nodes, func(p *place) error { p.server.Kill(); return nil })
		return func() error {
			return each(nodes, func(p *place) error {
				if it.kind == killNode {
					return p.server.Restart(always)
				}
				return p.server.RestartEmpty(always)
			})
		}, nil
	case hangNode:
		return nodes[0].server.Resume, nodes[0].server.Pause()
	case partition:
		cut(nodes, allSides, it.way, true)
		return quiet(func() { cut(nodes, allSides, it.way, false) }), nil
	case split:
		cut(nodes, []side{it.side}, it.way, true)
		return quiet(func() { cut(nodes, []side{it.side}, it.way, false) }), nil
	case halfOpen:
		cut(nodes, allSides, redistest.Both, true)
		_, err := nodes[0].server.Do("CLIENT", "KILL", "SKIPME", "yes") // TYPE normal spares who has subscribed, as those who wait have
		return quiet(func() { cut(nodes, allSides, redistest.Both, false) }), err
	case latency:
		gates(nodes, func(g *gate) { g.Delay(it.way, it.delay, it.jitter) })
		return quiet(func() { gates(nodes, func(g *gate) { g.Delay(redistest.Both, 0, 0) }) }), nil
	case reset:
		gates(nodes, func(g *gate) { g.Cut() })
		return nil, nil
	case refuse:
		var errs []error
		gates(nodes, func(g *gate) { errs = append(errs, g.Refuse(true)); g.Cut() })
		return func() error {
			var errs []error
			gates(nodes, func(g *gate) { errs = append(errs, g.Refuse(false)) })
			return errors.Join(errs...)
		}, errors.Join(errs...)
	case lostReply:
		gates(nodes, func(g *gate) { g.OnCommand(loseSome) })
		return quiet(func() { gates(nodes, func(g *gate) { g.OnCommand(nil) }) }), nil
	case namespace:
		return func() error { return nodes[0].wire.mend(always) }, nodes[0].wire.part(always, it.way)
	case clockStep, nudge:
		return func() error { return nodes[0].server.StepClock(-it.step) }, nodes[0].server.StepClock(it.step)
	case demote:
		_, err := nodes[0].server.Do("REPLICAOF", "127.0.0.1", "1") // no server listens there
		return doing(nodes[0].server, "REPLICAOF", "NO", "ONE"), err
	case failback:
		return t.failBack(ctx, it, nodes[0])
	case attach:
		return attachReplica(ctx, nodes[0])
	case settings, flush, scripts:
		return disturb(ctx, it, nodes[0].server)
	case restore:
		return restoreCopy(ctx, it, nodes[0])
	case admit:
		return t.admit(ctx, it, nodes[0])
	case setOne, setAll:
		return t.set(ctx, it, nodeNames(nodes))
	case stranger:
		return t.meetStranger(ctx, it)
	case neighbour:
		return t.meetNeighbour(ctx)
	case stop:
		err := t.ambush(ctx, it.aim, workers[0], workers[0].stop)
		return workers[0].resume, err
	case crash:
		err := t.ambush(ctx, it.aim, workers[0], func() error { workers[0].killed(); return nil })
		return func() error { return t.revive(always, workers[0]) }, err
	case starve:
		return starved(workers), nil
	}
	panic("torture: no such fault: " + string(it.kind))
}

// loseSome has a proxy lose the answers of one command in eight, which the server executes.
func loseSome(c redistest.Command) redistest.Action {
	switch strings.ToUpper(c.Name()) {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "INFO", "PING", "SCRIPT", "CONFIG":
		return redistest.Pass
	}
	if rand.IntN(8) == 0 {
		return redistest.CutAfter
	}
	return redistest.Pass
}

var allSides = []side{0, 1, observers}

// cut starts or ends the loss of all traffic of a direction between the nodes and the sides.
func cut(nodes []*place, from []side, way redistest.Direction, on bool) {
	for _, p := range nodes {
		for _, s := range from {
			p.gates[s].cut(way, on)
		}
	}
}

// gates calls do with each gate of each node.
func gates(nodes []*place, do func(*gate)) {
	for _, p := range nodes {
		for _, g := range p.gates {
			do(g)
		}
	}
}

// each calls do with all elements at once, and returns when all calls have returned.
func each[T any](all []T, do func(T) error) error {
	errs := make([]error, len(all))
	var doing sync.WaitGroup
	for i, p := range all {
		doing.Go(func() { errs[i] = do(p) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

// patience is how long ambush waits for a worker.
const patience = 3 * time.Second

// ambush calls strike at the moment at which the worker gets to the step that at names, or after
// patience, whatever the worker does then.
func (t *torturer) ambush(ctx context.Context, at aim, w *workerState, strike func() error) error {
	if at == anywhere {
		return strike()
	}
	a := t.registers.lay(w.assignment.Worker, at)
	defer t.registers.lift(w.assignment.Worker, a)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a.hit:
	case <-timer.C:
	case <-ctx.Done():
	}
	return strike()
}

// revive starts the next process of a worker whose process has ended, and tells it to work.
func (t *torturer) revive(ctx context.Context, w *workerState) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	t.resting <- struct{}{} // the new process must not work while the others are told to rest
	defer func() { <-t.resting }()
	return w.now().Tell(worker.Go)
}

// watch replaces workers that end by themselves, which is an error of the run.
func (t *torturer) watch(ctx context.Context) {
	for wait(ctx, time.Second) {
		for _, w := range t.workers {
			select {
			case w.turn <- struct{}{}:
			default:
				continue // the worker has a fault, which may be what ends it
			}
			t.replace(ctx, w)
			<-w.turn
		}
	}
}

// replace starts a new process of the worker if the present one has ended by itself.
func (t *torturer) replace(ctx context.Context, w *workerState) {
	how := w.fallen()
	if how == "" {
		return
	}
	say(t.options, "%s", how)
	err := t.revive(context.WithoutCancel(ctx), w)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs = append(t.errs, how)
	if err != nil {
		t.errs = append(t.errs, err.Error())
	}
}

// A starved worker runs for fed, is stopped for unfed, and so on, as under a CPU quota (kernel
// documentation, "CFS Bandwidth Control"). A real quota would need a control group of its own.
const (
	fed   = 5 * time.Millisecond
	unfed = 45 * time.Millisecond
)

// starved has the workers run for a tenth of the time until undo is called.
func starved(workers []*workerState) (undo func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var starving sync.WaitGroup
	for _, w := range workers {
		w.starve(true)
		l := w.now()
		starving.Go(func() {
			defer w.starve(false)
			defer func() { _ = l.Signal(syscall.SIGCONT) }()
			for ctx.Err() == nil {
				_ = l.Signal(syscall.SIGSTOP) // fails only if the process has ended by itself
				wait(ctx, unfed)
				_ = l.Signal(syscall.SIGCONT)
				wait(ctx, fed)
			}
		})
	}
	return func() error {
		cancel()
		starving.Wait()
		return nil
	}
}

// wait blocks for d. It returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
