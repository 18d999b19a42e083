package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

// simClients is the client processes of a simulated world, and what they do.
type simClients struct {
	world *sim.World
	plan  *sim.Plan

	stop    chan struct{}  // closed when the workers are to end
	working sync.WaitGroup // counts the machines whose workers have not ended
	close   chan struct{}  // closed when the processes are to end

	// leading is there where the workers campaign and observe, in place of what they do else.
	leading *simLeading
	// changes is there where an operator changes the deployment.
	changes *simChanges
}

// live runs the processes through the faults, then through the calm after them,
// and checks what is to hold then.
func (w *simClients) live() {
	w.stop, w.close = make(chan struct{}), make(chan struct{})
	var machines sync.WaitGroup
	for i := range w.plan.Machines {
		w.working.Add(1)
		machines.Go(func() { w.machine(i) })
	}
	if w.plan.Weather != sim.Outlaw && w.plan.Weather != sim.Replaced { // a clock that is set back has a key live for longer
		machines.Go(w.orphans)
	}
	if w.plan.Stranger != nil {
		w.working.Add(1)
		machines.Go(w.strangers)
	}
	if w.changes != nil {
		w.working.Add(1)
		machines.Go(w.changes.operate)
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
func (w *simClients) leftBehind() {
	// The background pauses for a second at most between two tries, and
	// connecting takes as long.
	time.Sleep(w.world.StallsFor() + 2*time.Second + 4*w.plan.NodeTimeout)
	for _, left := range w.world.LeftBehind(w.plan.Keys()) {
		w.world.Judge.Condemn("left behind: %s", left)
	}
}

// orphans checks, as long as the faults come, that no key outlives what it was made for.
func (w *simClients) orphans() {
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(3 * time.Second):
		}
		for _, orphan := range w.world.Orphans(w.plan.Keys(), w.plan.MaxTTL) {
			w.world.Judge.Condemn("no orphan: %s", orphan)
		}
	}
}

// afterwards checks that free locks are taken at once when all faults have been
// over for a quarantine, and that nothing is left of them.
func (w *simClients) afterwards() {
	j := w.world.Judge
	p := &simProcess{clients: w, machine: w.plan.Machine(0)}
	if err := p.open(); err != nil {
		j.Condemn("open: %v", err)
		return
	}
	defer p.close()
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
		p.takeAll(name)
	}
	time.Sleep(4 * w.plan.NodeTimeout)
	for _, left := range w.world.LeftBehind(w.plan.Keys()) {
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
func (w *simClients) machine(i int) {
	for m := w.plan.Machine(i); ; m = m.Reborn() {
		p := &simProcess{clients: w, machine: m}
		if last := p.run(); last {
			return
		}
	}
}

// process is one client program.
type simProcess struct {
	clients  *simClients
	machine  *sim.Machine
	client   *redlatch.Client
	observer *simObserver
	calls    int
	// maxTTL is the longest TTL that it may ask for.
	maxTTL time.Duration
}

// maxHold is for how long the library extends a lock.
func (p *simProcess) maxHold() time.Duration { return 3 * p.clients.plan.MaxTTL }

// open starts the program.
func (p *simProcess) open() error {
	config := p.config()
	p.observer = newSimObserver(p)
	config.Observer = p.observer
	batches := p.clients.world.Mutation.Batches() || p.clients.world.Mutation == sim.None && p.clients.world.Seed%2 == 0 // the other steps are what mutations change
	client, err := openInWorld(config, p.clients.world, p.machine, batches)
	p.client = client
	return err
}

// close ends the program.
func (p *simProcess) close() {
	p.client.Close()
	p.observer.close()
}

// config is what the deployment's clients agree on.
func (p *simProcess) config() redlatch.Config {
	plan := p.clients.plan
	config := redlatch.Config{
		TTL: plan.TTL, MaxTTL: plan.MaxTTL, NodeTimeout: plan.NodeTimeout,
		MaxHold: p.maxHold(),
		Label:   p.machine.Name,
	}
	if p.clients.world.Mutation == sim.QuarantineOff {
		config.NoQuarantine = true
	}
	config.Durable = plan.Weather == sim.Durable
	if p.clients.changes != nil {
		config.MaxTTL, config.Durable = p.clients.changes.now()
		config.TTL = min(config.TTL, config.MaxTTL)
	}
	p.maxTTL = config.MaxTTL
	return config
}

// acquired tells the judge of a lock, and of its loss.
func (p *simProcess) acquired(name, label string, lock *redlatch.Lock) *sim.Holding {
	return p.acquiredIn(lock.Context(), name, label)
}

// acquiredIn tells the judge of the lock whose context ctx is.
func (p *simProcess) acquiredIn(ctx context.Context, name, label string) *sim.Holding {
	holding := p.clients.world.Judge.Acquired(p.machine, name, label, hook.LeaseOf(ctx))
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

// toldAll is told for the names of one lock.
func toldAll(holdings []*sim.Holding, err error) error {
	for _, h := range holdings {
		told(h, err)
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
		Clock: m.Clock(), Draw: m.Draw, Random: m.Random, Batches: batches, Singly: w.Seed%3 > 0,
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
	w := p.clients
	if err := p.open(); err != nil {
		w.world.Judge.Condemn("%s: open: %v", p.machine.Name, err)
		w.working.Done()
		return true
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-p.machine.Dead():
			p.close() // to end its goroutines: nobody sees what a dead process does
		case <-w.stop:
			last = true
		}
		close(over)
	}()
	var workers sync.WaitGroup
	for i := range w.plan.Workers {
		k := &simWorker{process: p, rng: p.machine.Rand("worker", i), name: fmt.Sprintf("%s-%d-%d", p.machine.Name, p.machine.Life(), i)}
		switch {
		case w.leading == nil:
			workers.Go(func() { k.work(over) })
		case i%2 == 0:
			workers.Go(func() { k.campaign(over) })
		default:
			workers.Go(func() { k.observe(over) })
		}
	}
	workers.Wait()
	<-over
	if !last {
		return false
	}
	w.working.Done()
	<-w.close
	w.world.Judge.Gone(p.machine)
	p.close()
	return true
}
