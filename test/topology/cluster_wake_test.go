package topology

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A master hangs, its replica takes its place, waits, and gives a lock away. Then the
// former master goes on, and for a moment does not know that it is none, with clients
// that do not know it either.
func TestClusterMasterWakesUpReplaced(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, fixTTL)
		c.config.NodeTimeout = time.Second
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		name := storm.NameAt(0)
		locktest.Unlock(t, locktest.TryLock(t, holder, name))
		var rivals []*redlatch.Client // as in the master's connections
		for range 8 {
			client := locktest.Open(t, c.config)
			lock, err := lockSoon(t, client, name)
			if err != nil {
				t.Fatal(err)
			}
			locktest.Unlock(t, lock)
			rivals = append(rivals, client)
		}
		must(t, c.Masters[0].Pause())
		t.Cleanup(func() { c.Masters[0].Resume() })
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
		held, err := locktest.Open(t, c.config).Lock(locktest.Within(t, c.d+locktest.Patience), name)
		if err != nil {
			t.Fatal(err)
		}
		if locktest.Value(t, c.Replicas[0], name) == "" {
			t.Fatal("the lock is not at the new master")
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for _, client := range rivals {
			for range 4 {
				all.Go(func() {
					for ctx.Err() == nil {
						lock, err := client.TryLock(ctx, name)
						if err == nil && lock.Err() == nil && held.Err() == nil {
							t.Errorf("two holders, the second by the former master; the first one's is valid for %v", time.Until(held.Until()))
							cancel()
						}
						if err == nil {
							lock.Unlock(ctx)
						}
						storm.Rest(ctx, time.Millisecond)
					}
				})
			}
		}
		storm.Rest(ctx, 100*time.Millisecond) // they have commands under way by then
		must(t, c.Masters[0].Resume())
		storm.Rest(ctx, 2*time.Second)
		cancel()
		all.Wait()
		if err := held.Err(); err != nil {
			t.Errorf("the holder at the new master: %v", err)
		}
		locktest.Unlock(t, held)
		must(t, c.AwaitServing(locktest.Within(t, locktest.Patience)))
	})
}
