package sim_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// quiet is a world in which nothing is slow, with a client for each of some processes.
type quiet struct {
	*testing.T
	world   *sim.World
	rng     *rand.Rand
	nodes   int
	clients []*redlatch.Client
}

// newQuiet draws such a world, which end ends. All nodes are admitted in it.
func newQuiet(t *testing.T, seed uint64, processes int) (q *quiet, end func()) {
	t.Helper()
	w := sim.New(seed, sim.None)
	q = &quiet{T: t, world: w, rng: w.Rand("order"), nodes: []int{1, 3, 5}[seed/3%3]}
	networks := make([]sim.Network, q.nodes)
	for i := range networks {
		w.NewNode(sim.Always, false, 1, 0, time.Hour)
		networks[i] = sim.Network{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}
	}
	for range processes {
		m := w.NewMachine(1, 0, networks)
		client, err := openInWorld(redlatch.Config{TTL: 4 * time.Second, MaxTTL: 8 * time.Second, NoQuarantine: true, Label: m.Name}, w, m, false)
		if err != nil {
			t.Fatal(err)
		}
		q.clients = append(q.clients, client)
	}
	q.unlock(q.hold(q.clients[0].Lock(context.Background(), "first")))
	time.Sleep(time.Second)
	return q, func() {
		for _, client := range q.clients {
			client.Close()
		}
		w.End()
	}
}

// hold is the lock that a call returned.
func (q *quiet) hold(lock *redlatch.Lock, err error) *redlatch.Lock {
	if err != nil {
		q.Error(err)
	}
	return lock
}

func (q *quiet) unlock(lock *redlatch.Lock) {
	if err := lock.Unlock(context.Background()); err != nil {
		q.Error(err)
	}
}

// between is a time from least on.
func (q *quiet) between(least, most time.Duration) time.Duration {
	return least + time.Duration(q.rng.Int64N(int64(most-least)))
}

// queueUp has waiters acquire one after the other, each by a process of its own, and release after a while. It
// returns where the order will be in which they got what they wanted.
func (q *quiet) queueUp(waiters int, acquire func(i int) *redlatch.Lock) (order func() []int) {
	var mu sync.Mutex // guards got
	var got []int
	var all sync.WaitGroup
	for i := range waiters {
		hold := q.between(0, 20*time.Millisecond)
		all.Go(func() {
			lock := acquire(i)
			mu.Lock()
			got = append(got, i)
			mu.Unlock()
			time.Sleep(hold)
			q.unlock(lock)
		})
		time.Sleep(q.between(20*time.Millisecond, 420*time.Millisecond))
	}
	return func() []int {
		all.Wait()
		return got
	}
}

// Processes that come for permits one after the other get them in that order, on any number of nodes, however
// long each holds. Nothing is slow in such a world, and so nobody misses its turn.
func TestSimPermitsInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) {
			const waiters = 6
			q, end := newQuiet(t, seed, waiters+1)
			defer end()
			k := 1 + q.rng.IntN(3)
			acquire := func(i int) *redlatch.Lock { return q.hold(q.clients[i].Acquire(context.Background(), "pool", k)) }
			var held []*redlatch.Lock
			for range k {
				held = append(held, acquire(waiters))
			}
			order := q.queueUp(waiters, acquire)
			for i, lock := range held {
				if i > 0 {
					order() // one slot is free at a time
				}
				q.unlock(lock)
			}
			if got := order(); len(got) != waiters || !slices.IsSorted(got) {
				t.Errorf("seed %d: %d nodes, k = %d: the order is %v", seed, q.nodes, k, got)
			}
		})
	}
}

// Processes that come for some names at once, and others for one of these, get them in the order in which they
// came, though of these names one is free before the other: a call for both that has lost its turn for the first
// is in the queue for the other before those who came to it later than the call to the first.
func TestSimSetsInOrder(t *testing.T) {
	t.Parallel()
	for i := range uint64(24) {
		seed := 3 * i // a world in which no call takes the names one by one at once
		synctest.Test(t, func(t *testing.T) {
			const waiters = 6
			q, end := newQuiet(t, seed, waiters+1)
			defer end()
			names, one := []string{"a", "b"}, q.rng.IntN(2)
			var held []*redlatch.Lock
			for _, name := range names {
				held = append(held, q.hold(q.clients[waiters].Lock(context.Background(), name)))
			}
			time.Sleep(20 * time.Millisecond) // all nodes have heard of it, also the one that keeps the queue
			kinds := q.rng.Perm(waiters)      // of each kind three
			order := q.queueUp(waiters, func(i int) *redlatch.Lock {
				if kinds[i] < waiters/2 {
					return q.hold(q.clients[i].Lock(context.Background(), names[one]))
				}
				return q.hold(q.clients[i].LockAll(context.Background(), names))
			})
			// What those who want one wait for is free last.
			q.unlock(held[1-one])
			time.Sleep(q.between(20*time.Millisecond, time.Second))
			q.unlock(held[one])
			if got := order(); len(got) != waiters || !slices.IsSorted(got) {
				t.Errorf("seed %d: %d nodes, %v, of which those below %d want %s alone: the order is %v", seed, q.nodes, kinds, waiters/2, names[one], got)
			}
		})
	}
}
