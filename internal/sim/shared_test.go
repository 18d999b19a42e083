package sim_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

// acquireShared makes one call for a lock as a reader, and uses what it gets.
func (w *simWorker) acquireShared(over <-chan struct{}) {
	p, plan := w.process, w.process.clients.plan
	world := p.clients.world
	name := plan.Names[w.rng.IntN(len(plan.Names))]
	w.calls++
	label := fmt.Sprintf("%s-%d", w.name, w.calls)
	ttl := w.anyTTL()
	options := []redlatch.Option{redlatch.WithTTL(ttl), redlatch.WithLabel(label)}
	u := simUse{simWorker: w, name: name, label: label, renewed: w.chance(60), over: over}
	if !u.renewed {
		options = append(options, redlatch.WithoutRenewal())
	}
	patience := w.between(0, 3*time.Second)
	began := world.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errGivenUp)
	defer cancel()
	var lock *redlatch.Lock
	var err error
	waits := false
	switch kind := w.rng.IntN(10); {
	case kind < 3:
		lock, err = p.client.TryLock(ctx, name, append(options, redlatch.WithShared())...)
	case kind < 4:
		var holding *sim.Holding
		err = p.client.Do(ctx, name, func(ctx context.Context) error {
			w.run()
			holding = p.reads(ctx, name, label)
			holding.Ended()
			return nil
		}, append(options, redlatch.WithShared())...)
		told(holding, err)
		world.Over(label)
		return
	default:
		waits = true
		waiting := world.Judge.Waits(name, label)
		lock, err = p.client.RLock(ctx, name, options...)
		waiting.Over()
	}
	w.run()
	if err != nil {
		world.Over(label)
		w.failed(label, name, began, err)
		if waits && patience >= world.Judge.Decent() {
			w.refused(label, name, began, err)
		}
		return
	}
	u.lock, u.holding = lock, p.reads(lock.Context(), name, label)
	if u.renewed {
		u.holding.Renews(ttl, p.maxHold())
	}
	u.live()
}

// reads tells the judge of a reader's lock, whose context ctx is, and of its loss.
func (p *simProcess) reads(ctx context.Context, name, label string) *sim.Holding {
	holding := p.clients.world.Judge.AcquiredShared(p.machine, name, label, hook.LeaseOf(ctx))
	context.AfterFunc(ctx, func() { told(holding, context.Cause(ctx)) })
	return holding
}
