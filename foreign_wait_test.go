package redlatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// A client of another library, which knows of no line, holds the lock and lets go
// of it in the ways that there are. The first in line hears of it, and does not
// ask over and over meanwhile.
func TestWaitForAForeignHolder(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for what, end := range map[string]func(s *redistest.Server, name string){
			"releases":          func(s *redistest.Server, name string) { do(t, s, "EVAL", compareAndDelete, "1", name, "theirs") },
			"deletes":           func(s *redistest.Server, name string) { do(t, s, "DEL", name) },
			"expires":           func(s *redistest.Server, name string) { do(t, s, "PEXPIRE", name, "200") },
			"is made to expire": func(s *redistest.Server, name string) { do(t, s, "PEXPIRE", name, "0") },
			"is renamed":        func(s *redistest.Server, name string) { do(t, s, "RENAME", name, "{"+name+"}/old") },
		} {
			for _, n := range []int{1, 3} {
				for _, expiry := range []string{"60000", ""} {
					t.Run(fmt.Sprintf("%s N=%d PX %s", what, n, expiry), func(t *testing.T) {
						t.Parallel()
						nodes := sharedOf(t, binary, n)
						proxies := redistest.Proxies(t, nodes)
						client := open(t, config(proxyURLs(proxies)...))
						for _, s := range nodes {
							do(t, s, "SET", t.Name(), "theirs", "NX")
							if expiry != "" {
								do(t, s, "PEXPIRE", t.Name(), expiry)
							}
						}
						out := lockIn(within(t, patience), client, t.Name())
						arbiter := awaitQueued(t, nodes, t.Name(), 1)
						// It has told the server to be told: that is one more question.
						if err := proxies[arbiter].AwaitCommand(within(t, patience), "CLIENT", 2); err != nil {
							t.Fatal(err)
						}
						start := time.Now()
						for _, s := range nodes {
							end(s, t.Name())
						}
						o := <-out
						if o.err != nil {
							t.Fatal(o.err)
						}
						t.Logf("had it %v later", time.Since(start).Round(time.Microsecond))
						unlock(t, o.lock)
					})
				}
			}
		}
	})
}

// While another library's lock is waited for, nothing is asked but what keeps
// the place.
func TestWaitForAForeignHolderIsQuiet(t *testing.T) {
	t.Parallel()
	node := shared(t, 1)[0]
	proxy := redistest.NewProxy(t, node.Addr())
	client := open(t, config(proxy.URL()))
	do(t, node, "SET", t.Name(), "theirs", "PX", "60000")
	out := lockIn(within(t, 2*patience), client, t.Name())
	awaitQueued(t, []*redistest.Server{node}, t.Name(), 1)
	if err := proxy.AwaitCommand(within(t, patience), "CLIENT", 2); err != nil {
		t.Fatal(err)
	}
	// A busy machine may send what was due before late, but not always.
	for round := 0; ; round++ {
		before, start := proxy.Commands()["EVALSHA"], time.Now()
		<-time.After(3 * time.Second)
		asked, passed := proxy.Commands()["EVALSHA"]-before, time.Since(start)
		if most := int(passed/leastBeat) + 2; asked <= most {
			break
		}
		if round == 3 {
			t.Fatalf("asked %d times in %v", asked, passed)
		}
	}
	do(t, node, "DEL", t.Name())
	if o := <-out; o.err != nil {
		t.Error(o.err)
	} else {
		unlock(t, o.lock)
	}
}

// A foreign client holds the lock on a quorum without the node that keeps the
// line, where it looks free: those in line try now and then, as those do who have
// no line.
func TestWaitForAForeignHolderElsewhere(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	c := config(redistest.URLs(nodes)...)
	first := tryLock(t, open(t, c), "x")
	out := lockIn(within(t, patience), open(t, c), "x")
	arbiter := awaitQueued(t, nodes, "x", 1)
	unlock(t, first)
	o := <-out
	if o.err != nil {
		t.Fatal(o.err)
	}
	unlock(t, o.lock)
	for i, s := range nodes {
		awaitValue(t, s, "x", "")
		if i != arbiter {
			do(t, s, "SET", "x", "theirs", "PX", "60000")
		}
	}
	outs := make([]<-chan outcomeOf, 3)
	for i, client := range clientsOf(t, c, len(outs)) {
		outs[i] = lockIn(within(t, 2*patience), client, "x")
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
			do(t, s, "DEL", "x")
		}
	}
	passAll(t, &turnstile{t: t}, outs)
}

// Foreign clients come between again and again, as they may: they know of no
// line. Those in line get it in the end.
func TestForeignClientsPushIn(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		nodes := shared(t, n)
		c := config(redistest.URLs(nodes)...)
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
					if do(t, s, "SET", name, id, "NX", "PX", "60000") == "OK" {
						got++
					}
				}
				if got > n/2 {
					took++
				}
				for _, s := range nodes {
					do(t, s, "EVAL", compareAndDelete, "1", name, id)
				}
			}
		}()
		passes(t, &turnstile{t: t}, clientsOf(t, c, 3), name, 2, 10)
		close(finished)
		<-stopped
		t.Logf("N=%d: they had it %d times", n, took)
	}
}

// One of ours waits, a foreign client takes the lock when it is released, and
// lets go of it later.
func TestForeignClientTakesTheTurn(t *testing.T) {
	t.Parallel()
	node := shared(t, 1)[0]
	c := config(node.URL())
	first := tryLock(t, open(t, c), t.Name())
	out := lockIn(within(t, patience), open(t, c), t.Name())
	awaitQueued(t, []*redistest.Server{node}, t.Name(), 1)
	// As if it had come between the release and the turn.
	do(t, node, "SET", t.Name(), "theirs", "PX", "60000")
	if err := first.Unlock(t.Context()); err == nil {
		t.Error("the lock was lost, and the release says nothing")
	}
	select {
	case o := <-out:
		t.Fatalf("two holders: %v, %v", o.lock, o.err)
	case <-time.After(50 * time.Millisecond):
	}
	do(t, node, "DEL", t.Name())
	o := <-out
	if o.err != nil {
		t.Fatal(o.err)
	}
	unlock(t, o.lock)
}
