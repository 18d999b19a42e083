package faults

import (
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A node that refuses connections, or does not answer, is observed as unreachable, once, and as
// reachable when it answers again.
func TestObserverOfReach(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name      string
		off, back func(*redistest.Proxy) error
	}{
		{"refuses", func(p *redistest.Proxy) error { defer p.Cut(); return p.Refuse(true) }, func(p *redistest.Proxy) error { return p.Refuse(false) }},
		{"hangs", func(p *redistest.Proxy) error { p.HoldBack(redistest.Both, true); return nil }, func(p *redistest.Proxy) error { p.HoldBack(redistest.Both, false); return nil }},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			proxies := redistest.Proxies(t, locktest.Shared(t, 3))
			events := new(locktest.Events)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			c.Observer = events
			client := locktest.Open(t, c)
			events.Client.Store(client)
			locks := 0
			lock := func() {
				locks++ // what is left of the lock before is in nobody's way
				locktest.Unlock(t, locktest.TryLock(t, client, fmt.Sprint(t.Name(), locks)))
			}
			lost := func() []redlatch.NodeUnreachable { return locktest.EventsOf[redlatch.NodeUnreachable](events) }
			back := func() []redlatch.NodeReachable { return locktest.EventsOf[redlatch.NodeReachable](events) }
			locktest.Await(t, "all are reached", func() bool { lock(); s := client.Stats(); return s.Contacted == 3 && s.Unreachable == 0 })
			before := len(lost()) // on a machine that is too busy
			for round := 1; round <= 2; round++ {
				if err := how.off(proxies[2]); err != nil {
					t.Fatal(err)
				}
				locktest.Await(t, "it is lost", func() bool { lock(); return len(lost()) > before && client.Stats().Unreachable > 0 })
				if err := how.back(proxies[2]); err != nil {
					t.Fatal(err)
				}
				locktest.Await(t, "it is back", func() bool {
					if how.name == "refuses" {
						lock() // else nobody asks
					}
					return len(back()) == len(lost()) && client.Stats().Unreachable == 0
				})
				before = len(lost())
			}
			client.Close()
			if n := len(lost()); n < 2 || len(back()) != n {
				t.Errorf("%d lost, %d back", n, len(back()))
			}
			away := make(map[string]bool)
			for _, e := range events.All() {
				switch e := e.(type) {
				case redlatch.NodeUnreachable:
					if away[e.Node] || e.Err == nil {
						t.Errorf("%+v, away %t", e, away[e.Node])
					}
					away[e.Node] = true
				case redlatch.NodeReachable:
					if !away[e.Node] {
						t.Errorf("%+v, which was not away", e)
					}
					away[e.Node] = false
				}
			}
			if _, ok := away["n2"]; !ok || away["n2"] {
				t.Errorf("%v", away)
			}
		})
	}
}

// What cannot be reached from the first is observed too, and Close is no loss.
func TestObserverOfANodeThatWasNeverThere(t *testing.T) {
	t.Parallel()
	proxies := redistest.Proxies(t, locktest.Shared(t, 3))
	if err := proxies[1].Refuse(true); err != nil {
		t.Fatal(err)
	}
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	events := new(locktest.Events)
	for try := 0; try == 0 || try < 20 && len(events.All()) != 1; try++ { // a busy machine may reach no other either
		events = new(locktest.Events)
		c.Observer = events
		locktest.Open(t, c).Close()
	}
	lost := locktest.EventsOf[redlatch.NodeUnreachable](events)
	if len(lost) != 1 || lost[0].Node != "n1" || lost[0].Err == nil {
		t.Errorf("%+v", lost)
	}
	if kinds := events.Kinds(); kinds != "NodeUnreachable" {
		t.Errorf("observed %q", kinds)
	}
}
