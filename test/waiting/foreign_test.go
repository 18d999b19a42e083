package waiting

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A client of another library, which knows of no queue, holds the lock and lets go
// of it in the ways that there are. The first in the queue hears of it, and does not
// ask over and over meanwhile.
func TestWaitForAForeignHolder(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for what, end := range map[string]func(s *redistest.Server, name string){
			"releases": func(s *redistest.Server, name string) {
				locktest.Do(t, s, "EVAL", locktest.CompareAndDelete, "1", name, "theirs")
			},
			"deletes":           func(s *redistest.Server, name string) { locktest.Do(t, s, "DEL", name) },
			"expires":           func(s *redistest.Server, name string) { locktest.Do(t, s, "PEXPIRE", name, "200") },
			"is made to expire": func(s *redistest.Server, name string) { locktest.Do(t, s, "PEXPIRE", name, "0") },
			"is renamed":        func(s *redistest.Server, name string) { locktest.Do(t, s, "RENAME", name, "{"+name+"}/old") },
		} {
			for _, n := range []int{1, 3} {
				for _, expiry := range []string{"60000", ""} {
					t.Run(fmt.Sprintf("%s N=%d PX %s", what, n, expiry), func(t *testing.T) {
						t.Parallel()
						nodes := locktest.SharedOf(t, binary, n)
						proxies := redistest.Proxies(t, nodes)
						client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
						for _, s := range nodes {
							locktest.Do(t, s, "SET", t.Name(), "theirs", "NX")
							if expiry != "" {
								locktest.Do(t, s, "PEXPIRE", t.Name(), expiry)
							}
						}
						out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name())
						awaitQueued(t, nodes, t.Name(), 1)
						// It has told the server to be told: that is one more question. On a busy machine the queue
						// may have moved to another node since.
						locktest.Await(t, "a server is to tell it", func() bool {
							return slices.ContainsFunc(proxies, func(p *redistest.Proxy) bool { return p.Commands()["CLIENT"] >= 2 })
						})
						start := time.Now()
						for _, s := range nodes {
							end(s, t.Name())
						}
						o := <-out
						if o.Err != nil {
							t.Fatal(o.Err)
						}
						t.Logf("had it %v later", time.Since(start).Round(time.Microsecond))
						locktest.Unlock(t, o.Lock)
					})
				}
			}
		}
	})
}

// While another library's lock is waited for, nothing is asked but what keeps
// the ticket.
func TestWaitForAForeignHolderIsQuiet(t *testing.T) {
	t.Parallel()
	node := locktest.Shared(t, 1)[0]
	proxy := redistest.NewProxy(t, node.Addr())
	client := locktest.Open(t, locktest.Config(proxy.URL()))
	locktest.Do(t, node, "SET", t.Name(), "theirs", "PX", "60000")
	out := locktest.LockIn(locktest.Within(t, 2*locktest.Patience), client, t.Name())
	awaitQueued(t, []*redistest.Server{node}, t.Name(), 1)
	if err := proxy.AwaitCommand(locktest.Within(t, locktest.Patience), "CLIENT", 2); err != nil {
		t.Fatal(err)
	}
	// A busy machine may send what was due before late, but not always.
	for round := 0; ; round++ {
		before, start := proxy.Commands()["EVALSHA"], time.Now()
		<-time.After(3 * time.Second)
		asked, passed := proxy.Commands()["EVALSHA"]-before, time.Since(start)
		if most := int(passed/leastHeartbeat) + 2; asked <= most {
			break
		}
		if round == 3 {
			t.Fatalf("asked %d times in %v", asked, passed)
		}
	}
	locktest.Do(t, node, "DEL", t.Name())
	if o := <-out; o.Err != nil {
		t.Error(o.Err)
	} else {
		locktest.Unlock(t, o.Lock)
	}
}

// A foreign client holds the lock on a quorum without the
// arbiter, where it looks free: those who are queued try now and then, as those do who have
// no queue.
func TestWaitForAForeignHolderElsewhere(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	first := locktest.TryLock(t, locktest.Open(t, c), "x")
	out := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, c), "x")
	arbiter := awaitQueued(t, nodes, "x", 1)
	locktest.Unlock(t, first)
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	locktest.Unlock(t, o.Lock)
	for i, s := range nodes {
		locktest.AwaitValue(t, s, "x", "")
		if i != arbiter {
			locktest.Do(t, s, "SET", "x", "theirs", "PX", "60000")
		}
	}
	outs := make([]<-chan locktest.Outcome, 3)
	for i, client := range clientsOf(t, c, len(outs)) {
		outs[i] = locktest.LockIn(locktest.Within(t, 2*locktest.Patience), client, "x")
	}
	awaitQueued(t, nodes, "x", len(outs))
	before, start := commandsOf(t, nodes), time.Now()
	<-time.After(3 * time.Second)
	sent, passed := commandsOf(t, nodes)-before, time.Since(start)
	t.Logf("%d commands in %v", sent, passed)
	// A try and its undoing are two commands a node, and four tries of a turn follow
	// each other.
	if most := 100 * (int(passed/time.Second) + 1); sent > most {
		t.Errorf("%d commands in %v, want %d at most", sent, passed, most)
	}
	for i, s := range nodes {
		if i != arbiter {
			locktest.Do(t, s, "DEL", "x")
		}
	}
	passAll(t, &locktest.Turnstile{T: t}, outs)
}

// Foreign clients come between again and again, as they may: they know of no
// queue. Those who are queued get it in the end.
func TestForeignClientsPushIn(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := locktest.Shared(t, n)
		c := locktest.Config(redistest.URLs(nodes)...)
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		finished := make(chan struct{})
		stopped := make(chan struct{})
		took := 0
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-finished:
					return
				default:
				}
				id, got := fmt.Sprint("theirs", i), 0
				for _, s := range nodes {
					if locktest.Do(t, s, "SET", name, id, "NX", "PX", "60000") == "OK" {
						got++
					}
				}
				if got > n/2 {
					took++
				}
				for _, s := range nodes {
					locktest.Do(t, s, "EVAL", locktest.CompareAndDelete, "1", name, id)
				}
			}
		}()
		passes(t, &locktest.Turnstile{T: t}, clientsOf(t, c, 3), name, 2, 10)
		close(finished)
		<-stopped
		t.Logf("N=%d: they had it %d times", n, took)
	}
}

// One of ours waits, a foreign client takes the lock when it is released, and
// lets go of it later.
func TestForeignClientTakesTheTurn(t *testing.T) {
	t.Parallel()
	node := locktest.Shared(t, 1)[0]
	c := locktest.Config(node.URL())
	first := locktest.TryLock(t, locktest.Open(t, c), t.Name())
	out := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, c), t.Name())
	awaitQueued(t, []*redistest.Server{node}, t.Name(), 1)
	// As if it had come between the release and the turn.
	locktest.Do(t, node, "SET", t.Name(), "theirs", "PX", "60000")
	if err := first.Unlock(t.Context()); err == nil {
		t.Error("the lock was lost, and the release says nothing")
	}
	select {
	case o := <-out:
		t.Fatalf("two holders: %v, %v", o.Lock, o.Err)
	case <-time.After(50 * time.Millisecond):
	}
	locktest.Do(t, node, "DEL", t.Name())
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	locktest.Unlock(t, o.Lock)
}
