package waiting

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// A call for all names gets them while others lock one of them all the time, each in its turn: few locks
// are granted to them meanwhile.
func TestSetIsNotStarved(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for _, hold := range []time.Duration{0, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("N=%d hold=%v", n, hold), func(t *testing.T) {
				t.Parallel()
				const clients, sets = 16, 3
				c := locktest.Config(redistest.URLs(locktest.Shared(t, n))...)
				names := make([]string, 8)
				for i := range names {
					names[i] = fmt.Sprintf("%s/%d", t.Name(), i)
				}
				gates, from := &locktest.Turnstiles{T: t}, seed.Of(t)
				ctx, end := context.WithCancel(t.Context())
				var granted atomic.Int64
				var all sync.WaitGroup
				for i := range clients {
					client, rng := locktest.Open(t, c), rand.New(rand.NewPCG(from, uint64(i)))
					all.Go(func() {
						for {
							lock, err := client.Lock(ctx, names[rng.IntN(len(names))])
							if err != nil {
								return
							}
							granted.Add(1)
							gates.Pass(lock, fmt.Sprint(i), func() { time.Sleep(hold) })
						}
					})
				}
				client := locktest.Open(t, c)
				locktest.Await(t, "the others are at it", func() bool { return granted.Load() > 10*clients })
				for range sets {
					before, tries := granted.Load(), client.Stats().Tries
					lock, err := client.LockAll(locktest.Within(t, 2*locktest.Patience), names)
					if err != nil {
						t.Error(err)
						break
					}
					others, tries := granted.Load()-before, client.Stats().Tries-tries
					gates.Pass(lock, "all", func() {})
					t.Logf("%d locks were granted to others meanwhile, in %d tries", others, tries)
					// Of 16, each waits for each name once at most in a turn. A busy machine loses some.
					if hold > 0 && others > 10*8*clients {
						t.Errorf("%d locks were granted to others before a call for all got its own", others)
					}
				}
				end()
				all.Wait()
			})
		}
	}
}
