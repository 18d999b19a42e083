package waiting

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// passAll lets everybody through who waits on outs, in whatever order they come.
func passAll(t *testing.T, gate *locktest.Turnstile, outs []<-chan locktest.Outcome) {
	t.Helper()
	var group sync.WaitGroup
	for i, out := range outs {
		group.Go(func() { gate.PassNext(out, fmt.Sprint(i)) })
	}
	group.Wait()
}

// The arbiter dies while many wait: the queue goes on on another node, in its order, and
// the lock with it.
func TestArbiterDies(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
				t.Parallel()
				inTurn(t, locktest.SharedOf(t, binary, 1), "0 1 2 3 4 5", func(int) string {
					nodes := redistest.Nodes(t, n, redistest.Options{Binary: binary})
					c := locktest.Config(redistest.URLs(nodes)...)
					first := locktest.TryLock(t, locktest.Open(t, c), "x")
					outs := queueUp(t, nodes, clientsOf(t, c, 6), "x", 0)
					arbiter := awaitQueued(t, nodes, "x", 6)
					nodes[arbiter].Kill()
					rest := append(append([]*redistest.Server(nil), nodes[:arbiter]...), nodes[arbiter+1:]...)
					awaitQueued(t, rest, "x", 6)
					gate := &locktest.Turnstile{T: t}
					start := time.Now()
					locktest.Unlock(t, first)
					passAll(t, gate, outs)
					t.Logf("six had it in %v", time.Since(start).Round(time.Millisecond))
					awaitQueued(t, rest, "x", 0)
					return gate.Whole()
				})
			})
		}
	})
}

// It dies while the lock goes from hand to hand, and comes back, with and
// without its memory: nobody is stuck, and never two have it.
func TestArbiterRestartsUnderWay(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			var args []string
			if n == 1 {
				// Of one node that forgets, the lock's safety is the affair of the quarantine.
				args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			nodes := redistest.Nodes(t, n, redistest.Options{Args: args})
			c := locktest.Config(redistest.URLs(nodes)...)
			c.TTL = 6 * time.Second // for a busy machine to renew it
			first := locktest.TryLock(t, locktest.Open(t, c), "x", redlatch.WithTTL(locktest.TTL))
			clients := clientsOf(t, c, 5)
			outs := queueUp(t, nodes, clients, "x", 0)
			arbiter := nodes[awaitQueued(t, nodes, "x", 5)]
			gate := &locktest.Turnstile{T: t}
			var group sync.WaitGroup
			stop := make(chan struct{})
			for i, client := range clients {
				group.Go(func() {
					for {
						o := <-outs[i]
						if o.Err != nil {
							t.Error(o.Err)
							return
						}
						gate.Pass(o.Lock, fmt.Sprint(i))
						select {
						case <-stop:
							return
						default:
						}
						outs[i] = locktest.LockIn(locktest.Within(t, locktest.Patience), client, "x")
					}
				})
			}
			locktest.Unlock(t, first)
			for range 2 {
				passed := gate.Passed()
				locktest.Await(t, "it goes from hand to hand", func() bool { return gate.Passed() > passed+10 })
				arbiter.Kill()
				if err := arbiter.Restart(t.Context()); err != nil {
					t.Error(err)
				}
			}
			passed := gate.Passed()
			locktest.Await(t, "it goes on", func() bool { return gate.Passed() > passed+10 })
			close(stop)
			group.Wait()
		})
	}
}

// The arbiter loses its vote: it keeps no queue either, and the next node
// does, until it is admitted again.
func TestArbiterIsNotAdmitted(t *testing.T) {
	t.Parallel()
	inTurn(t, locktest.Shared(t, 1), "0 1 2", func(int) string { return orderPastForgetful(t) })
}

// orderPastForgetful is the order in which three have a lock whose arbiter was flushed while they waited.
func orderPastForgetful(t *testing.T) string {
	nodes := redistest.Nodes(t, 3)
	urls := redistest.URLs(nodes)
	holder := locktest.QuarantineClientOf(t, locktest.TTL, urls, true, true)
	first := locktest.TryLock(t, holder, "x")
	var clients []*redlatch.Client
	for range 3 {
		clients = append(clients, locktest.QuarantineClientOf(t, locktest.TTL, urls, true, false))
	}
	outs := queueUp(t, nodes, clients, "x", 0)
	arbiter := awaitQueued(t, nodes, "x", 3)
	locktest.Do(t, nodes[arbiter], "FLUSHALL")
	locktest.Await(t, "another keeps the queue", func() bool {
		for i, n := range ticketsOn(t, nodes, "x") {
			if i != arbiter && n == 3 {
				return true
			}
		}
		return false
	})
	if n := ticketsOn(t, nodes, "x")[arbiter]; n != 0 {
		t.Errorf("%d are queued on a node that is not admitted", n)
	}
	gate := &locktest.Turnstile{T: t}
	locktest.Unlock(t, first)
	passAll(t, gate, outs)
	return gate.Whole()
}

// The arbiter answers later than anybody waits, or not at all.
func TestArbiterIsSlow(t *testing.T) {
	t.Parallel()
	for what, trouble := range map[string]func(p *redistest.Proxy){
		"slow": func(p *redistest.Proxy) { p.Delay(redistest.Both, 1200*time.Millisecond, 0) },
		"hung": func(p *redistest.Proxy) { p.HoldBack(redistest.Replies, true) },
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(what+" "+when+" they come", func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, 3)
				proxies := redistest.Proxies(t, nodes)
				c := locktest.Config(locktest.ProxyURLs(proxies)...)
				c.NodeTimeout = 300 * time.Millisecond
				// On the arbiter, somebody finds out who is queued alone.
				name := t.Name()
				scout := locktest.TryLock(t, locktest.Open(t, c), name)
				out := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, c), name)
				arbiter := awaitQueued(t, nodes, name, 1)
				locktest.Unlock(t, scout)
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}

				clients := clientsOf(t, c, 4)
				if when == "before" {
					trouble(proxies[arbiter])
				}
				gate := &locktest.Turnstile{T: t}
				var outs []<-chan locktest.Outcome
				for _, client := range clients {
					report, waits := locktest.WhenWaiting(nil)
					outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, name, report))
					<-waits
				}
				if when == "after" {
					awaitQueued(t, nodes, name, len(clients))
					trouble(proxies[arbiter])
				}
				start := time.Now()
				locktest.Unlock(t, o.Lock)
				passAll(t, gate, outs)
				t.Logf("four had it in %v", time.Since(start).Round(time.Millisecond))
				proxies[arbiter].HoldBack(redistest.Replies, false)
				proxies[arbiter].Delay(redistest.Both, 0, 0)
				awaitQueued(t, nodes, name, 0)
			})
		}
	}
}

// All nodes restart while thousands wait, in several processes: everybody has
// the lock in the end.
func TestAllNodesRestartWhileManyWait(t *testing.T) {
	waiters := 3000
	if testing.Short() {
		waiters = 300
	}
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			c.TTL = 3 * time.Second
			first := locktest.TryLock(t, locktest.Open(t, c), "x", redlatch.WithTTL(locktest.TTL))
			gate := &locktest.Turnstile{T: t}
			clients := clientsOf(t, c, 3)
			// The last ones come when the nodes are down, or back.
			outs := make([]<-chan locktest.Outcome, waiters)
			for i := range outs {
				outs[i] = locktest.LockIn(locktest.Within(t, 2*locktest.Patience), clients[i%len(clients)], "x")
			}
			awaitQueued(t, nodes, "x", len(clients))
			for _, s := range nodes {
				s.Kill()
			}
			for _, s := range nodes {
				if err := s.RestartEmpty(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			first.Unlock(t.Context()) // which was lost with the nodes' memory
			start := time.Now()
			var group sync.WaitGroup
			for i, out := range outs {
				group.Go(func() { gate.PassNext(out, fmt.Sprint(i%len(clients))) })
			}
			group.Wait()
			t.Logf("%d had it within %v of the restart", waiters, time.Since(start).Round(time.Millisecond))
			if gate.Passed() != waiters {
				t.Errorf("%d had it", gate.Passed())
			}
		})
	}
}
