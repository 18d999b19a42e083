package waiting

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// awaitPermitsQueued waits until so many processes are queued for permits of name, on one node.
func awaitPermitsQueued(t *testing.T, nodes []*redistest.Server, name string, n int) {
	t.Helper()
	key := "redlatch:{" + name + "}:queue:" + locktest.PermitsKey(name)
	locktest.Await(t, fmt.Sprintf("%d are queued for %s", n, name), func() bool {
		total := 0
		for _, s := range nodes {
			total += int(locktest.Do(t, s, "ZCARD", key).(int64))
		}
		return total == n
	})
}

// queuedPermits returns the labels of those in the queue, first to last, when there are n.
func queuedPermits(t *testing.T, c redlatch.Config, name string, n int) (queued []string) {
	t.Helper()
	locktest.Await(t, "all nodes that have a queue have answered", func() bool {
		permits, _, err := redlatch.Permits(t.Context(), c, name)
		if err != nil || len(permits) == 0 || len(permits[0].Waiting) != n {
			return false
		}
		queued = nil
		for _, waiter := range permits[0].Waiting {
			queued = append(queued, waiter.Label)
		}
		return true
	})
	return queued
}

// permitOrder says in which order processes got permits that came one after the other, and how they stood in the queue if that
// was otherwise.
func permitOrder(t *testing.T, nodes []*redistest.Server, c redlatch.Config, name string) string {
	t.Helper()
	var order []int
	var came []string
	stood := ""
	const k, waiters = 2, 6
	first := locktest.Open(t, c)
	var held []*redlatch.Lock
	for range k {
		lock, err := first.Acquire(locktest.Within(t, locktest.Patience), name, k)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
	}
	var mu sync.Mutex // guards order
	var all sync.WaitGroup
	given := locktest.Within(t, waiters*locktest.Patience) // the first also waits for all others to come
	for i := range waiters {
		labelled := c
		labelled.Label = fmt.Sprint(i)
		client := locktest.Open(t, labelled)
		all.Go(func() {
			lock, err := client.Acquire(given, name, k)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			locktest.Unlock(t, lock)
		})
		awaitPermitsQueued(t, nodes, name, i+1)
		came = append(came, labelled.Label)
		if queued := queuedPermits(t, c, name, i+1); !slices.Equal(queued, came) {
			stood = fmt.Sprintf(", and in the queue were %q", queued)
		}
	}
	locktest.Unlock(t, held[0]) // the other is held on, so that they come one by one
	all.Wait()
	locktest.Unlock(t, held[1])
	awaitPermitsQueued(t, nodes, name, 0)
	return fmt.Sprint(order) + stood
}

// Processes stand in the queue for permits in the order in which they came, and get them in that order. On a busy
// machine one may miss its turn, which the next then has, or find another node's queue: TestSimPermitsInOrder is the same where
// none does.
func TestPermitsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3, 5} {
			nodes := locktest.SharedOf(t, binary, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			inTurn(t, nodes, "[0 1 2 3 4 5]", func(int) string {
				return permitOrder(t, nodes, c, fmt.Sprintf("%s/%d", t.Name(), n))
			})
		}
	})
}

// Calls for permits that are given up at any moment leave nothing behind, neither a slot nor a place in
// the queue for which others would wait.
func TestPermitsGivenUp(t *testing.T) {
	t.Parallel()
	const k = 2
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			c, name, from := locktest.Config(redistest.URLs(nodes)...), t.Name(), seed.Of(t)
			var all sync.WaitGroup
			for i := range 4 {
				client := locktest.Open(t, c)
				for j := range 3 {
					rng := rand.New(rand.NewPCG(from, uint64(3*i+j)))
					all.Go(func() {
						for range 60 {
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(6000))*time.Microsecond)
							if lock, err := client.Acquire(ctx, name, k); err == nil {
								lock.Unlock(t.Context())
							}
							cancel()
						}
					})
				}
			}
			all.Wait()
			for _, s := range nodes {
				for i := range k {
					locktest.AwaitValue(t, s, locktest.SlotKey(name, i), "")
				}
			}
			awaitPermitsQueued(t, nodes, name, 0)
			last := locktest.Open(t, c)
			for range k {
				lock, err := last.Acquire(locktest.Within(t, locktest.Patience), name, k)
				if err != nil {
					t.Fatal(err)
				}
				defer locktest.Unlock(t, lock)
			}
		})
	}
}

// Clients that differ in k: the largest counts.
func TestPermitsOfClientsThatDiffer(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			c := locktest.Config(redistest.URLs(locktest.SharedOf(t, binary, n))...)
			name := fmt.Sprintf("%s/%d", t.Name(), n)
			small, large := locktest.Open(t, c), locktest.Open(t, c)
			for range 2 {
				defer locktest.Unlock(t, locktest.TryLock(t, small, name, redlatch.WithPermits(2)))
			}
			third := locktest.TryLock(t, large, name, redlatch.WithPermits(3))
			for k, client := range map[int]*redlatch.Client{2: small, 3: large} {
				if _, err := locktest.TryInTime(t, client, name, redlatch.WithPermits(k)); !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("a fourth, of %d: %v, want ErrHeld", k, err)
				}
			}
			locktest.Unlock(t, third)
		}
	})
}
