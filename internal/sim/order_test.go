package sim_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/sim"
)

// Processes that come for permits one after the other get them in that order, on any number of nodes, however
// long each holds. Nothing is slow in such a world, and so nobody misses its turn.
func TestSimPermitsInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) {
			const waiters = 6
			w := sim.New(seed+1, sim.None)
			defer w.End()
			r := w.Rand("order")
			k, nodes := 1+r.IntN(3), []int{1, 3, 5}[seed%3]
			networks := make([]sim.Network, nodes)
			for i := range networks {
				w.NewNode(sim.Always, false, 1, 0, time.Hour)
				networks[i] = sim.Network{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}
			}
			acquire := func(client *redlatch.Client) *redlatch.Lock {
				lock, err := client.Acquire(context.Background(), "pool", k)
				if err != nil {
					t.Error(err)
				}
				return lock
			}
			var clients []*redlatch.Client
			for range waiters + 1 {
				m := w.NewMachine(1, 0, networks)
				client, err := openInWorld(redlatch.Config{TTL: 4 * time.Second, MaxTTL: 8 * time.Second, NoQuarantine: true, Label: m.Name}, w, m, false)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				clients = append(clients, client)
			}
			var held []*redlatch.Lock
			for range k {
				held = append(held, acquire(clients[waiters]))
			}
			var mu sync.Mutex // guards order
			var order []int
			var all sync.WaitGroup
			for i := range waiters {
				hold := time.Duration(r.IntN(20)) * time.Millisecond
				all.Go(func() {
					lock := acquire(clients[i])
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(hold)
					if err := lock.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Duration(20+r.IntN(400)) * time.Millisecond)
			}
			for i, lock := range held {
				if i > 0 {
					all.Wait() // one slot is free at a time
				}
				if err := lock.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
			all.Wait()
			if len(order) != waiters || !slices.IsSorted(order) {
				t.Errorf("seed %d: %d nodes, k = %d: the order is %v", seed+1, nodes, k, order)
			}
		})
	}
}
