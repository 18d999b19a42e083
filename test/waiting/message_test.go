package waiting

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// passes has each of the callers of each client take the lock in and out so
// often, and returns when all have.
func passes(t *testing.T, gate *locktest.Turnstile, clients []*redlatch.Client, name string, callers, rounds int) {
	t.Helper()
	var group sync.WaitGroup
	for i, client := range clients {
		for range callers {
			group.Go(func() {
				for range rounds {
					lock, err := client.Lock(locktest.Within(t, 2*locktest.Patience), name)
					if err != nil {
						t.Error(err)
						return
					}
					gate.Pass(lock, fmt.Sprint(i))
				}
			})
		}
	}
	group.Wait()
	if got, want := gate.Passed(), len(clients)*callers*rounds; got != want {
		t.Errorf("%d had it, want %d", got, want)
	}
}

// Connections break at random, before and after what was sent was executed:
// nobody is stuck, never two have the lock, and nothing is left.
func TestConnectionsBreakInTheQueue(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			base := seed.Of(t)
			c := locktest.Config(redistest.URLs(nodes)...)
			c.TTL, c.NodeTimeout = 2*time.Second, 500*time.Millisecond
			var clients []*redlatch.Client
			var mu sync.Mutex // guards breaks and rng
			breaks, rng := 0, rand.New(rand.NewPCG(base, 0))
			for range 3 {
				proxies := redistest.Proxies(t, nodes)
				clients = append(clients, locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)))
				for _, p := range proxies {
					p.OnCommand(func(c redistest.Command) redistest.Action {
						mu.Lock()
						defer mu.Unlock()
						if c.Name() != "EVALSHA" || rng.IntN(12) > 0 {
							return redistest.Pass
						}
						breaks++
						return []redistest.Action{redistest.CutBefore, redistest.CutAfter}[rng.IntN(2)]
					})
				}
			}
			gate := &locktest.Turnstile{T: t}
			passes(t, gate, clients, t.Name(), 2, 25)
			mu.Lock()
			t.Logf("%d breaks", breaks)
			if breaks == 0 {
				t.Error("nothing broke: nothing was shown")
			}
			mu.Unlock()
			awaitQueued(t, nodes, t.Name(), 0)
			for _, s := range nodes {
				locktest.AwaitValue(t, s, t.Name(), "")
			}
		})
	}
}

// The connection of the first in the queue is broken when the lock is released, so
// that it is not woken up; it has it when it is back.
func TestWaiterComesBack(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(redistest.URLs(nodes)...)
			waiter := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
			first := locktest.TryLock(t, locktest.Open(t, c), t.Name())
			out := locktest.LockIn(locktest.Within(t, locktest.Patience), waiter, t.Name())
			awaitQueued(t, nodes, t.Name(), 1)
			for _, p := range proxies {
				if err := p.Refuse(true); err != nil {
					t.Fatal(err)
				}
				p.Cut()
			}
			locktest.Unlock(t, first)
			for _, p := range proxies {
				if err := p.Refuse(false); err != nil {
					t.Fatal(err)
				}
			}
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			locktest.Unlock(t, o.Lock)
			awaitQueued(t, nodes, t.Name(), 0)
		})
	}
}

// Who releases may not publish, so that nobody who is queued is woken up; the
// lock goes on all the same.
func TestWakeUpsAreLost(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		node := redistest.New(t, redistest.Options{Binary: binary, Users: []string{
			"mute on >p ~* &* +@all -publish",
			"hears on >p ~* &* +@all",
		}})
		c := locktest.Config(node.URLAs("mute", "p"))
		first := locktest.TryLock(t, locktest.Open(t, c), "x")
		heard := clientsOf(t, locktest.Through(c, node.URLAs("hears", "p")), 2)
		outs := queueUp(t, []*redistest.Server{node}, heard, "x", 0)
		start := time.Now()
		locktest.Unlock(t, first)
		gate := &locktest.Turnstile{T: t}
		passAll(t, gate, outs)
		t.Logf("two had it within %v", time.Since(start).Round(time.Millisecond))
		passes(t, &locktest.Turnstile{T: t}, append(heard, locktest.Open(t, c)), "x", 1, 3)
	})
}

// Servers that do not let a user hear what they say: timers do it then, and
// Examine tells.
func TestServersThatTellNothing(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		users := map[string]struct{ rules, missing string }{
			"nochannels":  {"on >p ~* resetchannels +@all", "&redlatch:wake:*"},
			"nopubsub":    {"on >p ~* &* +@all -@pubsub", "+subscribe"},
			"nosubscribe": {"on >p ~* &* +@all -subscribe", "+subscribe"},
			"notracking":  {"on >p ~* &* +@all -client|tracking", "+client|tracking"},
			"nocaching":   {"on >p ~* &* +@all -client|caching", "+client|caching"},
		}
		var acl []string
		for user, u := range users {
			acl = append(acl, user+" "+u.rules)
		}
		node := redistest.New(t, redistest.Options{Binary: binary, Users: acl})
		nodes := []*redistest.Server{node}
		for user, u := range users {
			t.Run(user, func(t *testing.T) {
				t.Parallel()
				c := locktest.Config(node.URLAs(user, "p"))
				report := locktest.Examine(t, c)[0]
				if missing := strings.Join(report.Missing, " "); !strings.Contains(missing, u.missing) || report.Refusal != nil {
					t.Errorf("%s is not told: %q, %v", u.missing, missing, report.Refusal)
				}
				clients := clientsOf(t, c, 3)
				holder := locktest.Open(t, c)
				inTurn(t, nodes, "0 1 2", func(int) string {
					first := locktest.TryLock(t, holder, user)
					outs := queueUp(t, nodes, clients, user, 0)
					start := time.Now()
					locktest.Unlock(t, first)
					gate := &locktest.Turnstile{T: t}
					passAll(t, gate, outs)
					t.Logf("three had it within %v", time.Since(start).Round(time.Millisecond))
					return gate.Whole()
				})
				passes(t, &locktest.Turnstile{T: t}, clients, user, 2, 3)
				// Another library's lock is released.
				locktest.Do(t, node, "SET", user, "theirs", "PX", "60000")
				out := locktest.LockIn(locktest.Within(t, locktest.Patience), clients[0], user)
				awaitQueued(t, nodes, user, 1)
				locktest.Do(t, node, "DEL", user)
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				locktest.Unlock(t, o.Lock)
			})
		}
	})
}
