package waiting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// overlappingSets is how many sets of names each case has, fewer in a short run. The long run is
// REDLATCH_SETS=10000 go test -run TestOverlappingSets ./test/waiting .
func overlappingSets(t *testing.T) int64 {
	if text := os.Getenv("REDLATCH_SETS"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return 100
	}
	return 400
}

// Sets of two to four of few names, in any order, by 16 clients, and locks of one name among them: all
// come to an end, no name has two holders at once, and tokens grow for each name.
func TestOverlappingSets(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for _, hold := range []time.Duration{0, 2 * time.Millisecond} {
			t.Run(fmt.Sprintf("N=%d hold=%v", n, hold), func(t *testing.T) {
				t.Parallel()
				const clients, names = 16, 8
				c := locktest.Config(redistest.URLs(locktest.Shared(t, n))...)
				sets, gates, from := overlappingSets(t), &locktest.Turnstiles{T: t}, seed.Of(t)
				// It ends when nobody has got a lock for long: how many do in a time is up to the machine.
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stuck := time.AfterFunc(2*locktest.Patience, cancel)
				defer stuck.Stop()
				var done, longest, tries atomic.Int64
				var all sync.WaitGroup
				start := time.Now()
				for i := range clients {
					client, rng := locktest.Open(t, c), rand.New(rand.NewPCG(from, uint64(i)))
					all.Go(func() {
						defer func() { tries.Add(int64(client.Stats().Tries)) }()
						for done.Add(1) <= sets {
							set := make([]string, 1+rng.IntN(4))
							for k, n := range rng.Perm(names)[:len(set)] {
								set[k] = fmt.Sprintf("%s/%d", t.Name(), n)
							}
							asked := time.Now()
							lock, err := client.LockAll(ctx, set)
							if err != nil {
								t.Errorf("%q: %v", set, err)
								return
							}
							stuck.Reset(2 * locktest.Patience)
							for waited, before := int64(time.Since(asked)), longest.Load(); waited > before && !longest.CompareAndSwap(before, waited); {
								before = longest.Load()
							}
							gates.Pass(lock, fmt.Sprint(i), func() { time.Sleep(hold) })
						}
					})
				}
				all.Wait()
				t.Logf("%d sets in %v, the longest wait was %v; %d tries", sets, time.Since(start).Round(time.Millisecond), time.Duration(longest.Load()).Round(time.Millisecond), tries.Load())
			})
		}
	}
}

// Calls for several names that are given up at any moment leave nothing behind, neither a key nor a
// place in a queue for which others would wait.
func TestSeveralGivenUp(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			names := []string{t.Name() + "/a", t.Name() + "/b", t.Name() + "/c"}
			from := seed.Of(t)
			var all sync.WaitGroup
			for i := range 4 {
				client, rng := locktest.Open(t, c), rand.New(rand.NewPCG(from, uint64(i)))
				for range 3 {
					order := rng.Perm(len(names))
					waits := make([]time.Duration, 40)
					for k := range waits {
						waits[k] = time.Duration(rng.IntN(6000)) * time.Microsecond
					}
					all.Go(func() {
						set := []string{names[order[0]], names[order[1]]}
						for _, wait := range waits {
							ctx, cancel := context.WithTimeout(t.Context(), wait)
							if lock, err := client.LockAll(ctx, set); err == nil {
								lock.Unlock(t.Context())
							}
							cancel()
						}
					})
				}
			}
			all.Wait()
			for _, s := range nodes {
				for _, name := range names {
					locktest.AwaitValue(t, s, name, "")
				}
			}
			last := locktest.Open(t, c)
			lock, err := last.LockAll(locktest.Within(t, locktest.Patience), names)
			if err != nil {
				t.Fatal(err)
			}
			locktest.Unlock(t, lock)
		})
	}
}
