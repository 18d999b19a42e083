package sim_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// strangers lets clients come, one after the other, whose settings are not those of the
// deployment: they get no vote, and change nothing, as the world's judge watches. Some are of a
// deployment of their own, with locks of its own, and hold them.
func (w *simClients) strangers() {
	defer w.working.Done()
	rng := w.world.Rand("strangers")
	for number := 0; ; number++ {
		select {
		case <-w.stop:
			return
		case <-time.After(time.Second + time.Duration(rng.ExpFloat64()*float64(15*time.Second))):
		}
		if w.world.Settled() { // else it is theirs as much as anybody's
			w.stranger(rng, number)
		}
	}
}

// stranger is one of them.
func (w *simClients) stranger(rng *rand.Rand, number int) {
	p := &simProcess{clients: w, machine: w.plan.Stranger}
	config := p.config()
	nodes := w.world.Nodes()
	name, own := w.plan.Names[0], false
	switch rng.IntN(6) {
	case 0:
		config.MaxTTL = config.MaxTTL * 2
	case 1:
		config.MaxTTL = max(config.TTL, config.MaxTTL/2) - time.Millisecond
		config.TTL = min(config.TTL, config.MaxTTL)
	case 2:
		config.NoQuarantine = !config.NoQuarantine
	case 3:
		config.Durable = !config.Durable
	case 4:
		nodes = slices.Delete(slices.Clone(nodes), len(nodes)-1, len(nodes))
	case 5:
		config.Deployment, name, own = "other", "other-lock", true
		p.machine = w.plan.Neighbour
		config.MaxTTL += time.Second
		config.Durable = false
	}
	if len(nodes) == 0 {
		return
	}
	client, err := openOn(config, w.world, p.machine, nodes, rng.IntN(2) == 0)
	if err != nil {
		w.world.Judge.Condemn("stranger: open: %v", err)
		return
	}
	defer client.Close()
	for range 1 + rng.IntN(4) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Duration(rng.Int64N(int64(2*time.Second))), errGivenUp)
		label := sim.Labels(p.machine.Name, number, rng.IntN(1<<20))
		lock, err := client.Lock(ctx, name, redlatch.WithLabel(label), redlatch.WithGuard(0))
		cancel()
		w.world.History.Add(p.machine.Name, "%s gets %s (%+v): %v", label, name, config.MaxTTL, err)
		switch {
		case err == nil && config.NoQuarantine && w.world.Usurped():
			// All nodes had forgotten the deployment while it came: without a quarantine it holds by
			// its own word what others may hold.
			_ = lock.Unlock(context.Background())
		case err == nil:
			holding := p.acquired(name, label, lock)
			time.Sleep(time.Duration(rng.Int64N(int64(config.TTL))))
			holding.Ended()
			told(holding, lock.Unlock(context.Background()))
		}
		w.world.Over(label)
		if own && errors.Is(err, redlatch.ErrInvalid) {
			w.world.Judge.Condemn("nothing is refused: %s of another deployment: %v", label, err)
		}
	}
}

// operate is what an operator does at a bad moment: vouches for a node that has lost nothing for
// as long as a lock lives, or has nodes begin their quarantine anew.
func (w *simWorker) operate() {
	p, world := w.process, w.process.clients.world
	nodes := world.Nodes()
	n := nodes[w.rng.IntN(len(nodes))]
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errGivenUp)
	defer cancel()
	address := n.Name + ":6379"
	if w.chance(85) {
		if n.Complete(p.clients.plan.MaxTTL) {
			run := n.RunID()
			err := n.Vouch(func() error { return p.client.Admit(ctx, address) })
			world.History.Add(p.machine.Name, "an operator vouches for run %s of %s: %v", run, n.Name, err)
		}
		return
	}
	err := p.client.Reset(ctx, address)
	world.History.Add(p.machine.Name, "an operator resets %s: %v", n.Name, err)
}
