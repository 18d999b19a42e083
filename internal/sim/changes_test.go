package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/sim"
)

// simChanges is an operator who changes the settings of a deployment while its clients lock, as
// redlatch deployment set does, and has the programs started anew with the new ones.
type simChanges struct {
	clients *simClients

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	maxTTL  time.Duration
	durable bool
	// made counts the changes that reached all nodes, and partly those that did not.
	made, partly int
}

// now are the settings with which programs are started.
func (c *simChanges) now() (maxTTL time.Duration, durable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.maxTTL, c.durable
}

// operate changes the deployment now and then, amid faults, and once more when these are over.
func (c *simChanges) operate() {
	w := c.clients
	defer w.working.Done()
	var restarts sync.WaitGroup
	defer restarts.Wait()
	rng := w.world.Rand("operator")
	w.plan.AwaitForgetting()
	for {
		select {
		case <-w.stop:
			c.change(rng, true)
			return
		case <-w.plan.Burst():
		}
		select {
		case <-w.stop:
			continue
		case <-time.After(time.Duration(rng.ExpFloat64() * float64(3*time.Second))):
		}
		for i := range w.plan.Machines {
			d := time.Duration(rng.Int64N(int64(w.plan.MaxTTL)))
			restarts.Go(func() {
				select {
				case <-time.After(d):
					w.plan.Machine(i).Kill()
				case <-w.stop:
				}
			})
		}
		c.change(rng, false)
		w.plan.AwaitForgetting()
	}
}

// awaitHolder waits until somebody has got the lock, for some seconds at most.
func (c *simChanges) awaitHolder(rng *rand.Rand) {
	judge, over := c.clients.world.Judge, c.clients.world.Now()+5*time.Second
	for held := judge.Held(); judge.Held() == held && c.clients.world.Now() < over; {
		time.Sleep(time.Duration(1 + rng.Int64N(int64(50*time.Millisecond))))
	}
}

// change draws new settings, and resets all nodes to them. Unless it must, it may give up before it has
// reached each. Then servers may change their roles or restart, and lose nothing.
func (c *simChanges) change(rng *rand.Rand, must bool) {
	w := c.clients
	c.mu.Lock()
	if rng.IntN(4) > 0 {
		c.maxTTL = w.plan.OtherMaxTTL(c.maxTTL)
	}
	c.durable = !w.plan.Replicated() && rng.IntN(2) == 0
	c.mu.Unlock()
	p := &simProcess{clients: w, machine: w.plan.Operator}
	config := p.config()
	w.world.History.Add(p.machine.Name, "changes MaxTTL to %v, Durable to %t", config.MaxTTL, config.Durable)
	w.plan.Keep(time.Hour)
	defer w.plan.Keep(w.plan.Quarantine() + 2*time.Second)
	client, err := openInWorld(config, w.world, p.machine, false)
	if err != nil {
		w.world.Judge.Condemn("operator: open: %v", err)
		return
	}
	defer client.Close()
	if !must && rng.IntN(3) > 0 {
		if rng.IntN(2) == 0 {
			c.awaitHolder(rng)
		}
		w.plan.Forget(rng) // what was given away before is for the quarantine of this change to wait for
	}
	nodes := w.world.Nodes()
	left := rng.Perm(len(nodes))
	for pause, tries := 2*time.Millisecond, 1+rng.IntN(6); len(left) > 0 && (must || tries > 0); tries-- {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(pause)))
		pause = 500 * time.Millisecond
		var failed []int
		for _, i := range left {
			ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errGivenUp)
			err := client.Reset(ctx, nodes[i].Name+":6379")
			cancel()
			w.world.History.Add(p.machine.Name, "resets %s to MaxTTL %v: %v", nodes[i].Name, config.MaxTTL, err)
			if err != nil {
				failed = append(failed, i)
			}
		}
		left = failed
	}
	if !must {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second)))
		switch how := rng.IntN(4); {
		case how == 0:
			w.plan.Restart(rng)
		case how < 3 && w.plan.Replicated():
			w.plan.Replace(rng, false)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(left) == 0 {
		c.made++
	} else {
		c.partly++
	}
}

// While the settings of a deployment are changed again and again, and nodes fail, a lock that is held under one has no
// second holder under another. When all is over, clients with the last ones get it.
//
//	go test ./internal/sim -run 'TestSimChanges$' -v -sim.seed=N    runs one world and keeps its history
//	go test ./internal/sim -run 'TestSimChanges$' -v -sim.for=10m       goes on for so long
func TestSimChanges(t *testing.T) {
	t.Parallel()
	if !serially(t) {
		return
	}
	worlds := partOr(200, 20)
	start, ran, made, partly, held := time.Now(), 0, 0, 0, 0
	for ; ran < worlds || time.Since(start) < *simFor; ran++ {
		seed := *simFirst + uint64(ran)
		if *simSeed != 0 {
			seed, worlds = *simSeed, 1
		}
		var verdicts []string
		var history strings.Builder
		clean()
		synctest.Test(t, func(*testing.T) {
			w := sim.New(seed, sim.None)
			clients := &simClients{world: w, plan: sim.NewPlan(w, sim.Changes.String())}
			clients.changes = &simChanges{clients: clients, maxTTL: clients.plan.MaxTTL}
			clients.live()
			w.End()
			verdicts = w.Judge.Verdicts()
			if len(verdicts) > 0 || *simSeed != 0 {
				fmt.Fprintf(&history, "world %d: %s\n", seed, clients.plan)
				w.History.Print(&history)
			}
			made, partly, held = made+clients.changes.made, partly+clients.changes.partly, held+w.Judge.Held()
		})
		for _, v := range verdicts {
			t.Errorf("world %d: %s", seed, v)
		}
		if t.Failed() || *simSeed != 0 {
			t.Log(outcome{history: history.String()}.keep(seed))
			return
		}
	}
	t.Logf("%d worlds, %d changes of all nodes, %d of some, %d acquisitions in %v", ran, made, partly, held, time.Since(start))
	if made < 3*ran || partly < ran || held < 15*ran {
		t.Error("that is too little to show anything")
	}
}
