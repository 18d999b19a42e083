package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// Links whose every message takes a different time, and callers that leave at
// any moment: in 200 tries of 200 nothing is left. A release that overtook its
// own acquire would leave its key for the TTL.
func TestAbandonedTriesLeaveNothing(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		const tries, callers = 200, 10
		base := seed.Of(t)
		nodes := locktest.SharedOf(t, binary, 5)
		var urls []string
		for i, s := range nodes {
			p := redistest.NewProxy(t, s.Addr(), redistest.ProxyOptions{Seed: base + uint64(i)})
			p.Delay(redistest.Both, 0, 12*time.Millisecond)
			urls = append(urls, p.URL())
		}
		client := locktest.Open(t, locktest.Config(urls...))
		var took cleanups
		var mu sync.Mutex
		outcomes := make(map[string]int)
		var group sync.WaitGroup
		for caller := range uint64(callers) {
			group.Go(func() {
				rng := rand.New(rand.NewPCG(base, caller))
				for i := range tries / callers {
					name := fmt.Sprintf("%s/%d.%d", t.Name(), caller, i)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(80_000))*time.Microsecond)
					lock, err := client.TryLock(ctx, name)
					cancel()
					outcome := "abandoned"
					switch {
					case err == nil:
						outcome = "held"
						if err := lock.Unlock(t.Context()); err != nil {
							t.Errorf("unlock %s: %v", name, err)
						}
					case errors.Is(err, redlatch.ErrHeld):
						t.Errorf("%s is held: %v", name, err)
					}
					mu.Lock()
					outcomes[outcome]++
					mu.Unlock()
					start := time.Now()
					for _, s := range nodes {
						locktest.AwaitValue(t, s, name, "")
					}
					took.add(time.Since(start))
				}
			})
		}
		group.Wait()
		t.Logf("%v", outcomes)
		took.report(t, "nothing left after")
	})
}

// The same names over and over, by several clients: what one try left would be
// in the way of the next.
func TestAbandonedTriesAreInNobodysWay(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	var group sync.WaitGroup
	for caller := range uint64(3) {
		var urls []string
		for i, s := range nodes {
			p := redistest.NewProxy(t, s.Addr(), redistest.ProxyOptions{Seed: base + caller*10 + uint64(i)})
			p.Delay(redistest.Both, 0, 5*time.Millisecond)
			urls = append(urls, p.URL())
		}
		client := locktest.Open(t, locktest.Through(c, urls...))
		group.Go(func() {
			rng := rand.New(rand.NewPCG(base, caller))
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(12_000))*time.Microsecond)
				lock, err := client.TryLock(ctx, t.Name())
				cancel()
				if err != nil {
					continue
				}
				if err := lock.Unlock(t.Context()); err != nil {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	group.Wait()
	// Long before any TTL is over, the lock is free for all.
	lock, err := locktest.Open(t, c).Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, lock)
}
