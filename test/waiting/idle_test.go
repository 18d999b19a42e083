package waiting

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// leastHeartbeat is the shortest time between two heartbeats of a waiter.
const leastHeartbeat = 1400 * time.Millisecond

// commandsOf returns how many commands clients have sent to the servers, what
// scripts call not counted, nor what this asks.
func commandsOf(t *testing.T, nodes []*redistest.Server) int {
	t.Helper()
	n := 0
	for _, s := range nodes {
		info, err := s.Info("commandstats")
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"evalsha", "eval", "ping", "subscribe", "client|tracking", "client|caching"} {
			calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_"+command], "calls="), ",")
			k, _ := strconv.Atoi(calls) // of what was never sent there is nothing
			n += k
		}
	}
	return n
}

// Waiters send one heartbeat a process and name, whatever the number
// of its callers and of the nodes.
func TestIdleWaitersAreQuiet(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			const processes, names, callers = 4, 5, 20
			nodes := redistest.Nodes(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			c.TTL, c.MaxTTL = time.Hour, time.Hour // nothing renews them, and none may run out
			holder := locktest.Open(t, c)
			var held []*redlatch.Lock
			for k := range names {
				held = append(held, locktest.TryLock(t, holder, fmt.Sprint("x", k), redlatch.WithoutRenewal()))
			}
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for _, client := range clientsOf(t, c, processes) {
				for k := range names {
					for range callers {
						group.Go(func() {
							if _, err := client.Lock(ctx, fmt.Sprint("x", k)); !errors.Is(err, context.Canceled) {
								t.Error(err)
							}
						})
					}
				}
			}
			for k := range names {
				awaitQueued(t, nodes, fmt.Sprint("x", k), processes)
			}
			// On a busy machine the last ones are still coming, or heartbeats come late, but not always.
			for round := 0; ; round++ {
				before, start := commandsOf(t, nodes), time.Now()
				<-time.After(4 * time.Second)
				sent, passed := commandsOf(t, nodes)-before, time.Since(start)
				most := processes * names * (int(passed/leastHeartbeat) + 1)
				t.Logf("%d waiters of %d processes and %d names sent %d commands in %v", processes*names*callers, processes, names, sent, passed.Round(time.Millisecond))
				if sent <= most && sent >= processes*names {
					break
				}
				if round == 5 {
					t.Errorf("%d commands, want %d at most; fewer than %d let tickets lapse", sent, most, processes*names)
					break
				}
			}
			cancel()
			group.Wait()
			for _, lock := range held {
				locktest.Unlock(t, lock)
			}
		})
	}
}

// keysLike returns the keys that match pattern.
func keysLike(t *testing.T, s *redistest.Server, pattern string) []any {
	t.Helper()
	return locktest.Do(t, s, "KEYS", pattern).([]any)
}

// Waiters on many names, who got the lock, were cancelled or whose client was
// closed: in the end there is no more of anything than before. Not parallel: it
// counts the goroutines of the process.
func TestNothingGrows(t *testing.T) {
	nodes := redistest.Nodes(t, 3)
	before := runtime.NumGoroutine()
	c := locktest.Config(redistest.URLs(nodes)...)
	holder, stays := locktest.Open(t, c), locktest.Open(t, c)
	round := func(k int) {
		var group sync.WaitGroup
		var locks []*redlatch.Lock
		const names = 50
		name := func(i int) string { return fmt.Sprintf("x%d/%d", k, i) }
		for i := range names {
			locks = append(locks, locktest.TryLock(t, holder, name(i)))
		}
		closed := locktest.Open(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range names {
			for range 3 {
				group.Go(func() {
					lock, err := stays.Lock(locktest.Within(t, locktest.Patience), name(i))
					if err != nil {
						t.Error(err)
						return
					}
					locktest.Unlock(t, lock)
				})
				group.Go(func() {
					if lock, err := closed.Lock(t.Context(), name(i)); err == nil {
						lock.Unlock(t.Context())
					} else if !errors.Is(err, redlatch.ErrClosed) {
						t.Error(err)
					}
				})
				group.Go(func() {
					if lock, err := stays.Lock(ctx, name(i)); err == nil {
						lock.Unlock(t.Context())
					}
				})
			}
		}
		for i := range names {
			awaitQueued(t, nodes, name(i), 2)
		}
		cancel()
		if err := closed.Close(); err != nil {
			t.Error(err)
		}
		for _, lock := range locks {
			locktest.Unlock(t, lock)
		}
		group.Wait()
	}
	type amount struct{ goroutines, queues, channels int }
	settled := func() (a amount) {
		a.goroutines = runtime.NumGoroutine()
		for _, s := range nodes {
			a.queues += len(keysLike(t, s, "redlatch:*:queue:*")) + len(keysLike(t, s, "redlatch:*:heartbeats:*"))
			a.channels += len(locktest.Do(t, s, "PUBSUB", "CHANNELS").([]any))
		}
		return a
	}
	round(0)
	var first amount
	locktest.Await(t, "the queues are gone", func() bool { first = settled(); return first.queues == 0 })
	for k := range 3 {
		round(k + 1)
	}
	// A client that is open listens on each node where it was queued, and
	// keeps some goroutines for its next steps.
	const kept = 2 * 64
	locktest.Await(t, "as much of everything as after the first round", func() bool {
		a := settled()
		return a.queues == 0 && a.channels <= first.channels && a.goroutines <= first.goroutines+kept
	})
	if most := 2 * len(nodes); first.channels > most {
		t.Errorf("%d subscriptions of two clients", first.channels)
	}
	for _, s := range nodes {
		locktest.Await(t, "the keys that say who was woken up are gone", func() bool { return len(keysLike(t, s, "redlatch:*:next:*")) == 0 })
		for _, key := range keysLike(t, s, "*") {
			if strings.Contains(key.(string), ":token:") && locktest.Remaining(t, s, key.(string)) <= 0 {
				t.Errorf("%s is for ever", key)
			}
			if !strings.HasPrefix(key.(string), "redlatch:{") {
				t.Errorf("left: %s", key)
			}
		}
	}
	stays.Close()
	holder.Close()
	for _, s := range nodes {
		locktest.Await(t, "no subscriptions", func() bool { return len(locktest.Do(t, s, "PUBSUB", "CHANNELS").([]any)) == 0 })
	}
	locktest.Await(t, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
}
