package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

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

// anyTTL draws a TTL to ask for.
func (w *simWorker) anyTTL() time.Duration {
	return min(w.process.clients.plan.AnyTTL(w.rng), w.process.maxTTL)
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
	plan := w.process.clients.plan
	for w.think(plan, over) {
		switch chance := w.rng.IntN(100); {
		case chance < 4:
			w.acquireTogether()
		case plan.Weather == sim.Sets && chance < 70:
			w.acquireSet(over)
		case chance >= 10 && chance < 10+plan.Reads:
			w.acquireShared(over)
		case chance >= 10 && chance < 10+plan.Permits:
			w.acquirePermit(over)
		case chance < 6 && plan.Operated():
			w.operate()
		case chance < 7: // idle for longer than all that is kept of it
			if !w.sleep(w.between(0, 4*plan.Quarantine()), over) {
				return
			}
		default:
			w.acquire(over)
		}
		if len(w.process.clients.world.Judge.Verdicts()) > 0 {
			return
		}
	}
}

// errGivenUp is the cause of a wait that is cancelled.
var errGivenUp = errors.New("given up")

// acquire makes one call for a lock, and uses what it gets.
func (w *simWorker) acquire(over <-chan struct{}) {
	p, plan := w.process, w.process.clients.plan
	name := plan.Names[w.rng.IntN(len(plan.Names))]
	w.calls++
	label := fmt.Sprintf("%s-%d", w.name, w.calls)
	ttl := min(plan.TTL, p.maxTTL)
	if w.chance(50) {
		ttl = w.anyTTL()
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
	switch chance := w.rng.IntN(100); {
	case chance < 20:
		patience = w.between(0, 3*plan.NodeTimeout)
	case chance < 20+plan.Patient:
		patience = w.between(0, 2*plan.Quarantine())
	}
	began := p.clients.world.Now()
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
		p.clients.world.Over(label)
		return
	default:
		waits = true
		waiting := p.clients.world.Judge.Waits(name, label)
		lock, err = p.client.Lock(ctx, name, options...)
		waiting.Over()
	}
	w.run()
	if err != nil {
		p.clients.world.Over(label)
		w.failed(label, name, began, err)
		if waits && patience >= p.clients.world.Judge.Decent() {
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
	p, plan := w.process, w.process.clients.plan
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
			began := p.clients.world.Now()
			lock, err := p.client.Lock(ctx, name, redlatch.WithTTL(min(plan.TTL, p.maxTTL)), redlatch.WithLabel(label))
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
			p.clients.world.History.Add(p.machine.Name, "%s unlocked %s: %v", label, name, err)
		})
	}
	callers.Wait()
	w.run()
}

// failed looks at the error of a call that got no lock, nor any of the slots with these keys.
func (w *simWorker) failed(label, name string, began time.Duration, err error, slots ...string) {
	h := w.process.clients.world.History
	h.Add(w.process.machine.Name, "%s does not get %s: %v", label, name, err)
	world := w.process.clients.world
	known := errors.Is(err, redlatch.ErrRefused) && (slices.ContainsFunc(append(slots, name), func(key string) bool { return world.Faked(key, began) }) || world.Demoted(began)) || errors.Is(err, redlatch.ErrInvalid) && (world.Usurped() || w.process.clients.changes != nil)
	if !known && (errors.Is(err, redlatch.ErrRefused) || errors.Is(err, redlatch.ErrInvalid)) {
		w.process.clients.world.Judge.Condemn("nothing is refused: %s: %s: %v", label, name, err)
	}
}

// refused has the judge look at a call that failed though it had some patience.
func (w *simWorker) refused(label, name string, began time.Duration, err error) {
	if errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrNotAdmitted) {
		w.process.clients.world.Judge.Failed(name, label, began, err)
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
	plan := u.process.clients.plan
	for range u.rng.IntN(4) {
		d := u.between(0, plan.TTL)
		if u.chance(plan.Brief) {
			d = u.between(0, 30*time.Millisecond)
		}
		if !u.sleep(d, u.over) || u.lock.Err() != nil {
			break
		}
		if !u.renewed || u.chance(20) {
			u.extend(u.anyTTL())
		}
	}
	if !u.renewed && u.chance(plan.Abandon) {
		u.process.clients.world.Abandoned(u.label)
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
	u.process.clients.world.Over(u.label)
	u.process.clients.world.History.Add(u.process.machine.Name, "%s unlocked %s: %v", u.label, u.lock.Name(), err)
}

func (u *simUse) extend(ttl time.Duration) {
	ctx := context.Background()
	if u.chance(20) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.between(0, 2*u.process.clients.plan.NodeTimeout), errGivenUp)
		defer cancel()
	}
	err := told(u.holding, u.lock.Extend(ctx, ttl))
	u.run()
	u.process.clients.world.History.Add(u.process.machine.Name, "%s extends %s by %v: %v", u.label, u.lock.Name(), ttl, err)
	u.process.clients.world.Judge.Look(u.name)
}
