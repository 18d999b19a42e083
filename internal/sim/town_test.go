package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

// simTown is the client processes of a simulated world, and what they do.
type simTown struct {
	world *sim.World
	plan  *sim.Plan

	stop    chan struct{}  // closed when the workers are to end
	working sync.WaitGroup // counts the machines whose workers have not ended
	close   chan struct{}  // closed when the processes are to end
}

// live runs the processes through the faults, then through the calm after them,
// and checks what is to hold then.
func (w *simTown) live() {
	w.stop, w.close = make(chan struct{}), make(chan struct{})
	var machines sync.WaitGroup
	for i := range w.plan.Machines {
		w.working.Add(1)
		machines.Go(func() { w.machine(i) })
	}
	if w.plan.Weather != sim.Outlaw { // a clock that is set back has a key live for longer
		machines.Go(w.orphans)
	}
	if w.plan.Stranger != nil {
		w.working.Add(1)
		machines.Go(w.strangers)
	}
	w.plan.Run()
	close(w.stop)
	w.working.Wait()
	judging := len(w.world.Judge.Verdicts()) == 0
	if judging {
		w.leftBehind()
	}
	judging = judging && !w.world.Usurped() // until an operator has changed that, nobody gets a lock
	close(w.close)
	machines.Wait()
	if judging {
		w.afterwards()
	}
}

// leftBehind checks that the running processes have cleared away what failed or
// was unlocked, once all nodes can be reached.
func (w *simTown) leftBehind() {
	// The background pauses for a second at most between two tries, and
	// connecting takes as long.
	time.Sleep(w.world.StallsFor() + 2*time.Second + 4*w.plan.NodeTimeout)
	for _, left := range w.world.Leftovers(w.plan.Names) {
		w.world.Judge.Condemn("left behind: %s", left)
	}
}

// orphans checks, as long as the faults come, that no key outlives what it was made for.
func (w *simTown) orphans() {
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(3 * time.Second):
		}
		for _, orphan := range w.world.Orphans(w.plan.Names, w.plan.MaxTTL) {
			w.world.Judge.Condemn("no orphan: %s", orphan)
		}
	}
}

// afterwards checks that free locks are taken at once when all faults have been
// over for a quarantine, and that nothing is left of them.
func (w *simTown) afterwards() {
	j := w.world.Judge
	p := &simProcess{town: w, machine: w.plan.Machine(0)}
	if err := p.open(); err != nil {
		j.Condemn("open: %v", err)
		return
	}
	defer p.client.Close()
	try := func(name string, patience time.Duration) error {
		p.calls++
		label := fmt.Sprintf("last-%d", p.calls)
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errGivenUp)
		defer cancel()
		lock, err := p.client.Lock(ctx, name, redlatch.WithLabel(label))
		if err == nil {
			holding := p.acquired(name, label, lock)
			holding.Ended()
			err = told(holding, lock.Unlock(ctx))
		}
		return err
	}
	over := w.world.Now() + w.plan.Quarantine() + w.plan.MaxTTL + 3*time.Second
	for w.world.Now() < over {
		for _, name := range w.plan.Names {
			try(name, 2*w.plan.NodeTimeout)
		}
		time.Sleep(2 * time.Second)
	}
	for _, name := range w.plan.Names {
		if err := try(name, 500*time.Millisecond+4*w.plan.NodeTimeout); err != nil {
			j.Condemn("a free lock is taken: %s is not: %v", name, err)
		}
	}
	time.Sleep(4 * w.plan.NodeTimeout)
	for _, left := range w.world.Leftovers(w.plan.Names) {
		j.Condemn("left behind in the end: %s", left)
	}
	if w.plan.Weather == sim.Outside {
		return // what others have written is theirs
	}
	for _, key := range w.world.Endless(ofDeployment) {
		j.Condemn("nothing is left for ever: %s", key)
	}
}

// ofDeployment reports whether the key is one of the few that a deployment has on a node as long
// as it is in use.
func ofDeployment(key string) bool {
	return strings.HasSuffix(key, "}:admitted") || strings.HasSuffix(key, "}:deployment")
}

// machine runs one process after the other on machine i.
func (w *simTown) machine(i int) {
	for m := w.plan.Machine(i); ; m = m.Reborn() {
		p := &simProcess{town: w, machine: m}
		if last := p.run(); last {
			return
		}
	}
}

// process is one client program.
type simProcess struct {
	town    *simTown
	machine *sim.Machine
	client  *redlatch.Client
	calls   int
}

// maxHold is for how long the library extends a lock.
func (p *simProcess) maxHold() time.Duration { return 3 * p.town.plan.MaxTTL }

// open starts the program.
func (p *simProcess) open() error {
	config := p.config()
	batches := p.town.world.Mutation == sim.None && p.town.world.Seed%2 == 0 // the other steps are what mutations change
	client, err := openInWorld(config, p.town.world, p.machine, batches)
	p.client = client
	return err
}

// config is what the deployment's clients agree on.
func (p *simProcess) config() redlatch.Config {
	plan := p.town.plan
	config := redlatch.Config{
		TTL: plan.TTL, MaxTTL: plan.MaxTTL, NodeTimeout: plan.NodeTimeout,
		MaxHold: p.maxHold(),
		Label:   p.machine.Name,
	}
	if p.town.world.Mutation == sim.FenceOff {
		config.NoQuarantine = true
	}
	config.Durable = plan.Weather == sim.Durable
	return config
}

// acquired tells the judge of a lock, and of its loss.
func (p *simProcess) acquired(name, label string, lock *redlatch.Lock) *sim.Holding {
	return p.acquiredIn(lock.Context(), name, label)
}

// acquiredIn tells the judge of the lock whose context ctx is.
func (p *simProcess) acquiredIn(ctx context.Context, name, label string) *sim.Holding {
	holding := p.town.world.Judge.Acquired(p.machine, name, label, hook.LeaseOf(ctx))
	context.AfterFunc(ctx, func() { told(holding, context.Cause(ctx)) })
	return holding
}

// told returns what a holder is told, and has the judge hear it.
func told(holding *sim.Holding, err error) error {
	if holding != nil && errors.Is(err, redlatch.ErrLost) {
		holding.Lost()
	}
	return err
}

// openInWorld opens a client of the world's nodes on a machine.
func openInWorld(config redlatch.Config, w *sim.World, m *sim.Machine, batches bool) (*redlatch.Client, error) {
	return openOn(config, w, m, w.Nodes(), batches)
}

// openOn opens a client of some of the world's nodes.
func openOn(config redlatch.Config, w *sim.World, m *sim.Machine, nodes []*sim.Node, batches bool) (*redlatch.Client, error) {
	index := make(map[string]int)
	for _, n := range nodes {
		address := n.Name + ":6379"
		config.Nodes = append(config.Nodes, "redis://"+address)
		index[address] = n.Index()
	}
	client, err := hook.Open(config, hook.Surroundings{
		Clock: m.Clock(), Draw: m.Draw, Batches: batches,
		Dial: func(node string) (driver.Conn, error) { return m.Dial(index[node]), nil },
	})
	if err != nil {
		return nil, err
	}
	return client.(*redlatch.Client), nil
}

// run is the life of the program: until it is killed, or the last of its
// machine, which it reports.
func (p *simProcess) run() (last bool) {
	w := p.town
	if err := p.open(); err != nil {
		w.world.Judge.Condemn("%s: open: %v", p.machine.Name, err)
		w.working.Done()
		return true
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-p.machine.Dead():
			p.client.Close() // to end its goroutines: nobody sees what a dead process does
		case <-w.stop:
			last = true
		}
		close(over)
	}()
	var workers sync.WaitGroup
	for i := range w.plan.Workers {
		k := &simWorker{process: p, rng: p.machine.Rand("worker", i), name: fmt.Sprintf("%s-%d-%d", p.machine.Name, p.machine.Life(), i)}
		workers.Go(func() { k.work(over) })
	}
	workers.Wait()
	<-over
	if !last {
		return false
	}
	w.working.Done()
	<-w.close
	w.world.Judge.Gone(p.machine)
	p.client.Close()
	return true
}

// worker is one goroutine of a program, which takes locks.
type simWorker struct {
	process *simProcess
	rng     *rand.Rand
	name    string
	calls   int
}

func (w *simWorker) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *simWorker) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// sleep waits for d, or for the program to be over, which it reports.
func (w *simWorker) sleep(d time.Duration, over <-chan struct{}) (goOn bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		w.run()
		return true
	case <-over:
		return false
	}
}

// run waits while the machine is stopped. Its workers do not go on in step.
func (w *simWorker) run() {
	for w.process.machine.Run() {
		time.Sleep(w.between(0, time.Millisecond))
	}
}

// think waits between two locks: for long while it is quiet.
func (w *simWorker) think(plan *sim.Plan, over <-chan struct{}) (goOn bool) {
	d := time.Millisecond + time.Duration(w.rng.ExpFloat64()*float64(plan.Think))
	quiet := time.NewTimer(8*d + 5*time.Second)
	defer quiet.Stop()
	select {
	case <-plan.Burst():
		return w.sleep(d, over)
	case <-quiet.C:
		w.run()
		return true
	case <-over:
		return false
	}
}

func (w *simWorker) work(over <-chan struct{}) {
	plan := w.process.town.plan
	for w.think(plan, over) {
		switch chance := w.rng.IntN(100); {
		case chance < 4:
			w.acquireTogether()
		case chance < 6 && plan.Weather >= sim.Storm && plan.Weather != sim.Outlaw:
			w.operate()
		case chance < 7: // idle for longer than all that is kept of it
			if !w.sleep(w.between(0, 4*plan.Quarantine()), over) {
				return
			}
		default:
			w.acquire(over)
		}
		if len(w.process.town.world.Judge.Verdicts()) > 0 {
			return
		}
	}
}

// errGivenUp is the cause of a wait that is cancelled.
var errGivenUp = errors.New("given up")

// acquire makes one call for a lock, and uses what it gets.
func (w *simWorker) acquire(over <-chan struct{}) {
	p, plan := w.process, w.process.town.plan
	name := plan.Names[w.rng.IntN(len(plan.Names))]
	w.calls++
	label := fmt.Sprintf("%s-%d", w.name, w.calls)
	ttl := plan.TTL
	if w.chance(50) {
		ttl = plan.AnyTTL(w.rng)
	}
	options := []redlatch.Option{redlatch.WithTTL(ttl), redlatch.WithLabel(label)}
	if w.chance(60) {
		options = append(options, redlatch.WithGuard(0))
	}
	u := simUse{simWorker: w, name: name, label: label, renewed: w.chance(60), over: over}
	if !u.renewed {
		options = append(options, redlatch.WithoutRenewal())
	}

	patience := w.between(0, 1200*time.Millisecond)
	switch w.rng.IntN(10) {
	case 0, 1:
		patience = w.between(0, 3*plan.NodeTimeout)
	case 2:
		patience = w.between(0, 2*plan.Quarantine())
	}
	began := p.town.world.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errGivenUp)
	defer cancel()
	var lock *redlatch.Lock
	var err error
	waits := false
	switch kind := w.rng.IntN(10); {
	case kind < 3:
		lock, err = p.client.TryLock(ctx, name, options...)
	case kind < 5:
		var holding *sim.Holding
		err = p.client.Do(ctx, name, func(ctx context.Context) error {
			w.run()
			holding = p.acquiredIn(ctx, name, label)
			holding.Ended()
			return nil
		}, options...)
		told(holding, err)
		p.town.world.Over(label)
		return
	default:
		waits = true
		waiting := p.town.world.Judge.Waits(name, label)
		lock, err = p.client.Lock(ctx, name, options...)
		waiting.Over()
	}
	w.run()
	if err != nil {
		p.town.world.Over(label)
		w.failed(label, name, began, err)
		if waits && patience >= w.decent() {
			w.refused(label, name, began, err)
		}
		return
	}
	u.lock = lock
	u.holding = p.acquired(name, label, lock)
	if u.renewed {
		u.holding.Renews(ttl, p.maxHold())
	}
	u.live()
}

// acquireTogether has several callers want one lock for the same, each for a moment: they
// hold it in turn, several by one attempt.
func (w *simWorker) acquireTogether() {
	p, plan := w.process, w.process.town.plan
	name := plan.Names[w.rng.IntN(len(plan.Names))]
	label := fmt.Sprintf("%s-%d%s", p.machine.Name, p.machine.Life(), sim.Shared)
	var callers sync.WaitGroup
	for range 3 + w.rng.IntN(5) {
		// No two of them do anything at the same instant, which would be another world
		// every time.
		after, d, patience := w.between(1, time.Millisecond), w.between(1, 3*time.Millisecond), w.between(0, 1200*time.Millisecond)
		run := func() {
			for p.machine.Run() {
				time.Sleep(d)
			}
		}
		callers.Go(func() {
			time.Sleep(after)
			ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errGivenUp)
			defer cancel()
			began := p.town.world.Now()
			lock, err := p.client.Lock(ctx, name, redlatch.WithTTL(plan.TTL), redlatch.WithLabel(label))
			run()
			if err != nil {
				w.failed(label, name, began, err)
				return
			}
			holding := p.acquired(name, label, lock)
			time.Sleep(d)
			run()
			holding.Ended()
			err = told(holding, lock.Unlock(ctx))
			time.Sleep(after) // the next says that it holds, at this instant
			p.town.world.History.Add(p.machine.Name, "%s unlocked %s: %v", label, name, err)
		})
	}
	callers.Wait()
	w.run()
}

// failed looks at the error of a call that got no lock.
func (w *simWorker) failed(label, name string, began time.Duration, err error) {
	h := w.process.town.world.History
	h.Add(w.process.machine.Name, "%s does not get %s: %v", label, name, err)
	world := w.process.town.world
	known := errors.Is(err, redlatch.ErrRefused) && (world.Faked(name) || world.Demoted(began)) || errors.Is(err, redlatch.ErrInvalid) && world.Usurped()
	if !known && (errors.Is(err, redlatch.ErrRefused) || errors.Is(err, redlatch.ErrInvalid)) {
		w.process.town.world.Judge.Condemn("nothing is refused: %s: %s: %v", label, name, err)
	}
}

// decent is a patience with which a call asks all nodes at least once.
func (w *simWorker) decent() time.Duration {
	return 500*time.Millisecond + 4*w.process.town.plan.NodeTimeout
}

// refused has the judge look at a call that failed though it had some patience.
func (w *simWorker) refused(label, name string, began time.Duration, err error) {
	if errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrNotAdmitted) {
		w.process.town.world.Judge.Failed(name, label, began, err)
	}
}

// use is what a worker does with a lock it holds.
type simUse struct {
	*simWorker
	lock        *redlatch.Lock
	holding     *sim.Holding
	name, label string
	renewed     bool
	over        <-chan struct{}
}

func (u *simUse) live() {
	plan := u.process.town.plan
	for range u.rng.IntN(4) {
		d := u.between(0, plan.TTL)
		if u.chance(plan.Brief) {
			d = u.between(0, 30*time.Millisecond)
		}
		if !u.sleep(d, u.over) || u.lock.Err() != nil {
			break
		}
		if !u.renewed || u.chance(20) {
			u.extend(plan.AnyTTL(u.rng))
		}
	}
	if !u.renewed && u.chance(15) {
		u.process.town.world.Abandoned(u.label)
		return // nobody unlocks it: it runs out
	}
	if plan.Weather != sim.Alone && u.chance(30) {
		select {
		case <-u.lock.Context().Done():
		case <-time.After(2 * plan.MaxTTL):
		case <-u.over:
		}
		time.Sleep(u.between(1, time.Millisecond)) // the work stops
		u.run()
	}
	u.holding.Ended()
	err := told(u.holding, u.lock.Unlock(context.Background()))
	u.holding.Unlocked(err)
	u.process.town.world.Over(u.label)
	u.process.town.world.History.Add(u.process.machine.Name, "%s unlocked %s: %v", u.label, u.lock.Name(), err)
}

func (u *simUse) extend(ttl time.Duration) {
	ctx := context.Background()
	if u.chance(20) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.between(0, 2*u.process.town.plan.NodeTimeout), errGivenUp)
		defer cancel()
	}
	err := told(u.holding, u.lock.Extend(ctx, ttl))
	u.run()
	u.process.town.world.History.Add(u.process.machine.Name, "%s extends %s by %v: %v", u.label, u.lock.Name(), ttl, err)
	u.process.town.world.Judge.Look(u.name)
}
