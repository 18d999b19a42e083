package sim_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

// simQueue is processes that all want one lock all the time, in a world without faults.
type simQueue struct {
	world *sim.World
	// hold and think are the means of how long a caller holds the lock, and does without.
	hold, think time.Duration
	over        time.Duration
	// processes has one for each process.
	processes []*simCallers

	mu    sync.Mutex // guards what follows
	turns *sim.Turns
}

// simCallers is the callers of one process.
type simCallers struct {
	name    string
	client  *redlatch.Client
	machine *sim.Machine
	rng     *rand.Rand
	turn    *sim.Turn
}

// newSimQueue draws a world: quick nodes, of which one may be slow to answer everybody.
func newSimQueue(seed uint64) *simQueue {
	w := sim.New(seed, sim.None)
	r := w.Rand("queue")
	q := &simQueue{
		world: w,
		hold:  []time.Duration{0, 10 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond}[r.IntN(4)],
		think: []time.Duration{0, 0, 30 * time.Millisecond}[r.IntN(3)],
	}
	nodes := []int{1, 3, 3, 5}[r.IntN(4)]
	networks := make([]sim.Network, nodes)
	for i := range networks {
		w.NewNode(sim.Always, false, 1, 0, time.Hour)
		networks[i] = sim.Network{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}
	}
	slowest := networks[0].Delay
	if r.IntN(2) == 0 {
		slowest = time.Duration(1+r.IntN(15)) * time.Millisecond
		networks[r.IntN(nodes)].Delay = slowest
	}
	q.turns = sim.NewTurns(w.Judge)
	q.turns.Settle, q.turns.Longest = 20*time.Millisecond+20*slowest, 2*q.hold+2*time.Millisecond
	q.over = 3*time.Second + 60*q.hold
	for i := range 2 + r.IntN(3) {
		m := w.NewMachine(1, 0, networks)
		q.processes = append(q.processes, &simCallers{name: m.Name, machine: m, rng: m.Rand("crew", i), turn: q.turns.Add(m.Name)})
	}
	return q
}

// live has the processes take the lock in turn until the world is over.
func (q *simQueue) live() {
	var callers sync.WaitGroup
	for _, c := range q.processes {
		config := redlatch.Config{TTL: 4 * time.Second, MaxTTL: 8 * time.Second, NoQuarantine: true, Label: c.name}
		client, err := openInWorld(config, q.world, c.machine, false)
		if err != nil {
			q.world.Judge.Condemn("open: %v", err)
			return
		}
		c.client = client
		for i := range 1 + c.rng.IntN(20) {
			callers.Go(func() { q.call(c, c.machine.Rand("caller", i)) })
		}
	}
	callers.Wait()
	for _, c := range q.processes {
		c.client.Close()
	}
}

// call is one caller.
func (q *simQueue) call(c *simCallers, rng *rand.Rand) {
	around := func(d time.Duration) time.Duration {
		return time.Duration(1 + rng.Int64N(int64(2*d)+int64(time.Millisecond)))
	}
	for q.world.Now() < q.over && len(q.world.Judge.Verdicts()) == 0 {
		time.Sleep(around(q.think))
		q.tell(q.turns.Comes, c)
		lock, err := c.client.Lock(context.Background(), "x")
		if err != nil {
			q.world.Judge.Condemn("%s: %v", c.name, err)
			return
		}
		holding := q.world.Judge.Acquired(c.machine, "x", c.name, hook.LeaseOf(lock))
		q.tell(q.turns.Serves, c)
		time.Sleep(around(q.hold))
		holding.Ended()
		if err := lock.Unlock(context.Background()); err != nil {
			q.world.Judge.Condemn("%s: %v", c.name, err)
		}
	}
}

// tell has the judge know that a caller of c waits, or has the lock.
func (q *simQueue) tell(what func(*sim.Turn), c *simCallers) {
	q.mu.Lock()
	defer q.mu.Unlock()
	what(c.turn)
}

// Processes that want one lock all the time have it in turn, however long each holds it
// and how slow a node is: none waits for longer than the others' turns take.
func TestSimIsFair(t *testing.T) {
	t.Parallel()
	if !serially(t) {
		return
	}
	worlds := partOr(100, 20)
	first, last := uint64(1), uint64(worlds)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	served := 0
	for seed := first; seed <= last; seed++ {
		clean()
		synctest.Test(t, func(t *testing.T) {
			q := newSimQueue(seed)
			q.live()
			q.world.End()
			verdicts := q.world.Judge.Verdicts()
			if len(verdicts) == 0 {
				for _, c := range q.processes {
					served += c.turn.Served
				}
				return
			}
			var b strings.Builder
			if *simSeed != 0 {
				q.world.History.Print(&b)
			}
			t.Errorf("seed %d: %d nodes, held for %v: %s\n%s\treplay: go test ./internal/sim -run TestSimIsFair -sim.seed=%d",
				seed, len(q.world.Nodes()), q.hold, verdicts[0], b.String(), seed)
		})
	}
	t.Logf("%d locks in %d worlds", served, last-first+1)
	if least := 50 * int(last-first+1); served < least {
		t.Errorf("%d locks are too few: at least %d are wanted", served, least)
	}
}
