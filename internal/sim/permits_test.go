package sim_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

// acquirePermit makes one call for a permit, and uses what it gets.
func (w *simWorker) acquirePermit(over <-chan struct{}) {
	p, plan := w.process, w.process.clients.plan
	world := p.clients.world
	name := plan.Names[w.rng.IntN(len(plan.Names))]
	k := plan.LeastSlots + w.rng.IntN(plan.Slots-plan.LeastSlots+1)
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
	var err error
	waits := false
	switch kind := w.rng.IntN(10); {
	case kind < 3:
		u.lock, err = p.client.TryLock(ctx, name, append(options, redlatch.WithPermits(k))...)
	case kind < 4:
		var holding *sim.Holding
		err = p.client.Do(ctx, name, func(ctx context.Context) error {
			w.run()
			if lock, ok := redlatch.Held(ctx, name); ok { // else it was lost by now, and nobody says which
				holding = p.permitted(ctx, name, lock.Slot(), k, label)
				holding.Ended()
			}
			return nil
		}, append(options, redlatch.WithPermits(k))...)
		told(holding, err)
		world.Over(label)
		return
	default:
		waits = true
		waiting := world.Judge.WaitsForPermit(name, label, plan.LeastSlots)
		u.lock, err = p.client.Acquire(ctx, name, k, options...)
		waiting.Over()
	}
	w.run()
	if err != nil {
		world.Over(label)
		w.failed(label, name, began, err, plan.SlotKeys(name)...)
		if waits && patience >= world.Judge.Decent() && (errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrNotAdmitted)) {
			world.Judge.FailedPermit(name, label, k, began, err)
		}
		return
	}
	u.holding = p.permitted(u.lock.Context(), name, u.lock.Slot(), k, label)
	if u.renewed {
		u.holding.Renews(ttl, p.maxHold())
	}
	u.live()
}

// permitted tells the judge of a permit, whose context ctx is, and of its loss.
func (p *simProcess) permitted(ctx context.Context, name string, slot, k int, label string) *sim.Holding {
	holding := p.clients.world.Judge.AcquiredPermit(p.machine, name, slot, k, label, hook.LeaseOf(ctx))
	context.AfterFunc(ctx, func() { told(holding, context.Cause(ctx)) })
	return holding
}

// takeAll checks that all permits of a name can be taken, and not one more, when all faults are long over.
func (p *simProcess) takeAll(name string) {
	plan, j := p.clients.plan, p.clients.world.Judge
	if plan.Permits == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 500*time.Millisecond+8*plan.NodeTimeout, errGivenUp)
	defer cancel()
	for range plan.Slots {
		p.calls++
		label := fmt.Sprintf("last-%d", p.calls)
		lock, err := p.client.Acquire(ctx, name, plan.Slots, redlatch.WithLabel(label))
		if err != nil {
			j.Condemn("a free permit is taken: %s of %s is not: %v", label, name, err)
			return
		}
		holding := p.permitted(lock.Context(), name, lock.Slot(), plan.Slots, label)
		defer func() {
			holding.Ended()
			told(holding, lock.Unlock(context.Background()))
		}()
	}
	if lock, err := p.client.TryLock(ctx, name, redlatch.WithPermits(plan.Slots)); !errors.Is(err, redlatch.ErrHeld) {
		j.Condemn("no more than k permits: one more of %s than %d is taken: %v, %v", name, plan.Slots, lock, err)
	}
}
