package sim_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// acquireSet makes one call for several names, and uses what it gets. The judge hears of each name.
func (w *simWorker) acquireSet(over <-chan struct{}) {
	p, plan := w.process, w.process.clients.plan
	w.calls++
	label := fmt.Sprintf("%s-%d", w.name, w.calls)
	defer p.clients.world.Over(label)
	order := w.rng.Perm(len(plan.Names))
	names := make([]string, 2+w.rng.IntN(len(plan.Names)-1))
	for i := range names {
		names[i] = plan.Names[order[i]]
	}
	ttl := w.anyTTL()
	options := []redlatch.Option{redlatch.WithTTL(ttl), redlatch.WithLabel(label)}
	renewed := w.chance(60)
	if !renewed {
		options = append(options, redlatch.WithoutRenewal())
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), w.between(0, 3*time.Second), errGivenUp)
	defer cancel()
	began := p.clients.world.Now()
	var lock *redlatch.Lock
	var err error
	if w.chance(30) {
		lock, err = p.client.TryLock(ctx, names[0], append(options, redlatch.WithAlso(names[1:]...))...)
	} else {
		lock, err = p.client.LockAll(ctx, names, options...)
	}
	w.run()
	if err != nil {
		w.failed(label, names[0], began, err)
		return
	}
	holdings := make([]*sim.Holding, len(names))
	for i, name := range names {
		holdings[i] = p.acquired(name, label, lock)
		if renewed {
			holdings[i].Renews(ttl, p.maxHold())
		}
	}
	for range w.rng.IntN(4) {
		d := w.between(0, plan.TTL)
		if w.chance(plan.Brief) {
			d = w.between(0, 30*time.Millisecond)
		}
		if !w.sleep(d, over) || lock.Err() != nil {
			break
		}
		if !renewed || w.chance(20) {
			toldAll(holdings, lock.Extend(context.Background(), w.anyTTL()))
			w.run()
		}
	}
	if !renewed && w.chance(plan.Abandon) {
		p.clients.world.Abandoned(label)
		return // nobody unlocks it: it runs out
	}
	for _, h := range holdings {
		h.Ended()
	}
	err = lock.Unlock(context.Background())
	for _, h := range holdings {
		told(h, err)
		h.Unlocked(err)
	}
	p.clients.world.History.Add(p.machine.Name, "%s unlocked %q: %v", label, names, err)
}
