package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/sim"
)

const (
	// clusterLength is how long things happen in a world with a Cluster.
	clusterLength = 100 * time.Second
	// clusterClients is on how many machines a client is.
	clusterClients = 3
)

// simCluster is a world with a Cluster, and the clients in it.
type simCluster struct {
	world   *sim.World
	cluster *sim.Cluster
	rng     *rand.Rand
	maxTTL  time.Duration
	names   []string
	events  int
}

// newSimCluster draws a world.
func newSimCluster(seed uint64) *simCluster {
	w := sim.New(seed, sim.None)
	r := w.Rand("plan")
	c := &simCluster{world: w, rng: r, names: []string{"lock-a", "lock-b", sharedName, poolName, pair[0]}, maxTTL: time.Second + time.Duration(r.Int64N(int64(5*time.Second))).Truncate(time.Millisecond)}
	w.Judge.NodeTimeout, w.Judge.Quarantine = 50*time.Millisecond, c.maxTTL+4*time.Second
	c.cluster = w.NewCluster([]int{3, 3, 3, 5}[r.IntN(4)], sim.Durability(r.IntN(4)), time.Duration(r.Int64N(int64(2*time.Second))))
	networks := make([]sim.Network, len(w.Nodes()))
	for i := range networks {
		networks[i] = sim.Network{Delay: time.Duration(20+r.IntN(1000)) * time.Microsecond, Jitter: 200 * time.Microsecond, Spikes: 0.01, Spike: 300 * time.Millisecond, Cuts: 0.002}
	}
	for range clusterClients {
		machine := w.NewMachine(1+0.0045*(2*r.Float64()-1), time.Duration(r.Int64N(int64(time.Minute))), networks)
		machine.Stalls(0.01*r.Float64(), time.Duration(1+r.Int64N(int64(c.maxTTL))))
	}
	return c
}

// live has the clients lock while things happen.
func (c *simCluster) live() {
	over := make(chan struct{})
	var clients sync.WaitGroup
	for i := range clusterClients {
		clients.Go(func() { c.machine(i, over) })
	}
	for c.world.Now() < clusterLength && len(c.world.Judge.Verdicts()) == 0 {
		time.Sleep(time.Duration(c.rng.ExpFloat64() * float64(10*time.Second)))
		for range 1 + c.rng.IntN(4) {
			c.event()
			c.events++
			time.Sleep(time.Duration(c.rng.ExpFloat64() * float64(500*time.Millisecond)))
		}
	}
	c.cluster.Calm()
	time.Sleep(c.world.StallsFor() + c.world.Judge.Quarantine + 2*c.maxTTL + 5*time.Second)
	close(over)
	clients.Wait()
	c.world.End()
}

// event brings something upon the Cluster, or upon a client.
func (c *simCluster) event() {
	m, d := c.world.Machine(c.rng.IntN(clusterClients)), time.Duration(c.rng.ExpFloat64()*float64(2*time.Second))
	switch c.rng.IntN(17) {
	case 0:
		m.Pause(d, c.rng.IntN(2) == 0)
	case 1:
		m.Partition(c.rng.IntN(len(c.world.Nodes())), c.rng.IntN(2) == 0, c.rng.IntN(2) == 0, 3*d)
	case 2:
		m.Kill()
	default:
		c.cluster.Event(c.names[c.rng.IntN(len(c.names))])
	}
}

// machine runs one program after the other on a machine, of which each knows nothing of the one before.
func (c *simCluster) machine(i int, over <-chan struct{}) {
	for m := c.world.Machine(i); !c.program(m, over); m = m.Reborn() {
		m.Run()
	}
}

// program is one program, whose workers lock one name each until it ends, is killed, or all is over, which it reports.
func (c *simCluster) program(m *sim.Machine, over <-chan struct{}) (last bool) {
	opened, err := hook.Open(redlatch.Config{
		Nodes: []string{"redis://cluster:6379?cluster"}, TTL: c.maxTTL, MaxTTL: c.maxTTL, Label: m.Name,
	}, hook.Surroundings{
		Clock: m.Clock(), Draw: m.Draw, Random: m.Random, Singly: c.world.Seed%3 > 0,
		Dial: func(string) (driver.Conn, error) { return m.DialCluster(), nil },
	})
	if err != nil {
		c.world.Judge.Condemn("open: %v", err)
		return true
	}
	client := opened.(*redlatch.Client)
	end := make(chan struct{})
	var workers sync.WaitGroup
	for j, name := range c.names {
		r := m.Rand("worker", j)
		workers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				case <-time.After(time.Duration(1 + r.Int64N(int64(300*time.Millisecond)))):
				}
				m.Run()
				c.lock(client, m, r, name, fmt.Sprintf("%s-%d-%d-%d", m.Name, m.Life(), j, n))
			}
		})
	}
	select {
	case <-over:
		last = true
	case <-m.Dead():
		client.Close() // to end its goroutines: nobody sees what a dead process does
	case <-time.After(time.Duration(m.Rand("life", 0).ExpFloat64() * float64(time.Minute))):
	}
	close(end)
	workers.Wait()
	if last {
		for _, name := range c.names {
			c.take(client, m, name)
		}
	}
	c.world.Judge.Gone(m)
	client.Close()
	return last
}

// take is to get a lock that others may have, but nobody for long.
func (c *simCluster) take(client *redlatch.Client, m *sim.Machine, name string) {
	if len(c.world.Judge.Verdicts()) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.maxTTL+5*time.Second)
	defer cancel()
	lock, err := client.Lock(ctx, name)
	if err != nil {
		c.world.Judge.Condemn("a free lock is taken: %s of %s is not: %v", name, m.Name, err)
		return
	}
	_ = lock.Unlock(ctx)
}

// These names are locked by readers, too, and for one of two permits.
const sharedName, poolName = "shared", "pool"

// pair are names of one slot, which are locked one by one and together.
var pair = []string{"{pair}-a", "{pair}-b"}

// simCall is how a call is made.
type simCall struct {
	take     func(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error)
	options  []redlatch.Option
	names    []string // what is then held
	acquired func(*sim.Machine, string, string, hook.Lease) *sim.Holding
}

// draw draws how a worker of name makes its next call.
func (c *simCluster) draw(client *redlatch.Client, r *rand.Rand, name string) simCall {
	call, tries := simCall{take: client.Lock, names: []string{name}, acquired: c.world.Judge.Acquired}, r.IntN(2) == 0
	if tries {
		call.take = client.TryLock
	}
	switch name {
	case sharedName:
		if r.IntN(2) == 0 {
			break
		}
		call.acquired = c.world.Judge.AcquiredShared
		if call.take = client.RLock; tries {
			call.take, call.options = client.TryLock, []redlatch.Option{redlatch.WithShared()}
		}
	case poolName:
		call.options = []redlatch.Option{redlatch.WithPermits(2)}
	case pair[0]:
		n := r.IntN(len(pair) + 1)
		switch {
		case n < len(pair):
			call.names = pair[n : n+1]
		case tries:
			call.names, call.options = pair, []redlatch.Option{redlatch.WithAlso(pair[1])}
		default:
			call.names = pair
			call.take = func(ctx context.Context, _ string, options ...redlatch.Option) (*redlatch.Lock, error) {
				return client.LockAll(ctx, pair, options...)
			}
		}
	}
	return call
}

// lock is one call, and what follows.
func (c *simCluster) lock(client *redlatch.Client, m *sim.Machine, r *rand.Rand, name, label string) {
	ttl := time.Duration(r.Int64N(int64(c.maxTTL-300*time.Millisecond))) + 300*time.Millisecond
	if r.IntN(2) == 0 {
		ttl = c.maxTTL
	}
	call := c.draw(client, r, name)
	options := append(call.options, redlatch.WithTTL(ttl), redlatch.WithLabel(label), redlatch.WithGuard(0))
	if r.IntN(2) == 0 {
		options = append(options, redlatch.WithoutRenewal())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(2*time.Second))))
	defer cancel()
	names := call.names
	lock, err := call.take(ctx, names[0], options...)
	m.Run()
	if err != nil {
		c.world.History.Add(m.Name, "%s does not get %q: %v", label, names, err)
		if errors.Is(err, redlatch.ErrInvalid) {
			c.world.Judge.Condemn("nothing is refused: %s: %v", label, err)
		}
		return
	}
	if name == poolName {
		names = []string{fmt.Sprintf("%s#%d", name, lock.Slot())}
	}
	var holdings []*sim.Holding
	for _, name := range names {
		holdings = append(holdings, call.acquired(m, name, label, hook.LeaseOf(lock.Context())))
	}
	context.AfterFunc(lock.Context(), func() { toldAll(holdings, context.Cause(lock.Context())) })
	for range r.IntN(3) {
		time.Sleep(time.Duration(1 + r.Int64N(int64(ttl))))
		m.Run()
		if r.IntN(2) == 0 {
			err := toldAll(holdings, lock.Extend(context.Background(), ttl))
			c.world.History.Add(m.Name, "%s extends %q: %v", label, names, err)
		}
	}
	for _, h := range holdings {
		h.Ended()
	}
	err = toldAll(holdings, lock.Unlock(context.Background()))
	c.world.History.Add(m.Name, "%s unlocked %q: %v", label, names, err)
}

// In a Cluster whose servers hang, crash, are cut off and replaced, which is flushed, and whose slots are moved, with
// their keys and without, a lock has one holder at a time, who knows when the validity is over, and tokens grow.
//
//	go test ./internal/sim -run TestSimCluster -v -sim.seed=N    replays one world and prints its history
//	go test ./internal/sim -run TestSimCluster -v -sim.for=10m -sim.first=N    goes on with others for so long
func TestSimCluster(t *testing.T) {
	t.Parallel()
	if !serially(t) {
		return
	}
	start, worlds := time.Now(), 24
	if testing.Short() || simWorlds < 1000 {
		worlds = 10
	}
	if *simHistories != "" {
		worlds = *simCount
	}
	run, held, events := 0, 0, 0
	for run < worlds || time.Since(start) < *simFor {
		seed := *simFirst + uint64(int64(run)**simStep)
		if *simSeed != 0 {
			seed, worlds = *simSeed, 1
		}
		run++
		var verdicts []string
		var history strings.Builder
		clean()
		synctest.Test(t, func(*testing.T) {
			c := newSimCluster(seed)
			c.live()
			verdicts = c.world.Judge.Verdicts()
			held, events = held+c.world.Judge.Held(), events+c.events
			if len(verdicts) > 0 || *simSeed != 0 || *simHistories != "" {
				fmt.Fprintf(&history, "world %d: MaxTTL %v\n", seed, c.maxTTL)
				c.world.History.Print(&history)
			}
		})
		for _, v := range verdicts {
			t.Errorf("world %d: %s", seed, v)
		}
		switch {
		case *simHistories != "":
			if err := os.WriteFile(historyFile(*simHistories, seed), []byte(history.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		case history.Len() > 0:
			t.Log(outcome{history: history.String()}.keep(seed))
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d worlds, %d locks held, %d faults and moves, in %v", run, held, events, time.Since(start).Round(time.Millisecond))
	if *simSeed == 0 && (held < 50*run || events < 10*run) {
		t.Error("that is too little to show anything")
	}
}
