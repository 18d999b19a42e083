package topology

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
	"github.com/redlatch/redlatch/oneshot"
)

// newObservedCluster starts a Cluster, and returns a client that has used all of its masters and what that
// client is told.
func newObservedCluster(t *testing.T, binary string) (*hurtCluster, *redlatch.Client, *locktest.Events) {
	t.Helper()
	c := newHurtCluster(t, binary, 0, fixTTL)
	events := new(locktest.Events)
	c.config.NodeTimeout, c.config.Observer = 250*time.Millisecond, events
	client := locktest.Open(t, c.config)
	events.Client.Store(client)
	c.admit(t, client)
	for i := range c.Masters {
		locktest.Unlock(t, locktest.TryLock(t, client, storm.NameAt(i)))
	}
	return c, client, events
}

// A Cluster is observed as unreachable when none of its masters answers that was asked, and as
// reachable when one does.
func TestClusterObserver(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c, client, events := newObservedCluster(t, binary)
		lost := func() int { return len(locktest.EventsOf[redlatch.NodeUnreachable](events)) }
		back := func() int { return len(locktest.EventsOf[redlatch.NodeReachable](events)) }
		before := lost()
		for i, master := range c.Masters {
			if i > 0 && lost() > before {
				t.Errorf("observed as lost with %d of %d masters hung: %q", i, len(c.Masters), events.Kinds())
			}
			must(t, master.Pause())
			t.Cleanup(func() { master.Resume() })
			if i == 0 {
				for range 5 {
					if lock, err := client.TryLock(t.Context(), storm.NameAt(0)); err == nil {
						t.Errorf("%v was granted by a master that hangs", lock)
					}
				}
			}
		}
		locktest.Await(t, "it is lost", func() bool {
			for i := range c.Masters {
				client.TryLock(t.Context(), storm.NameAt(i))
			}
			return lost() > before
		})
		must(t, c.Masters[1].Resume())
		must(t, c.Masters[2].Resume())
		must(t, c.Masters[0].Resume())
		locktest.Await(t, "it is back", func() bool {
			if lock, err := client.TryLock(t.Context(), storm.NameAt(1)); err == nil {
				locktest.Unlock(t, lock)
			}
			return back() == lost() && client.Stats().Unreachable == 0
		})

		// The client is idle until what it knows of the masters is too old to send a vote on.
		before = lost()
		for _, master := range c.Masters {
			must(t, master.Pause())
		}
		idle := time.Now()
		locktest.Await(t, "it is lost to an idle client", func() bool {
			if time.Since(idle) > 2*time.Second {
				client.TryLock(t.Context(), storm.NameAt(0))
			}
			return lost() > before
		})
		for _, master := range c.Masters {
			must(t, master.Resume())
		}
		locktest.Await(t, "it is back to the idle client", func() bool {
			if lock, err := client.TryLock(t.Context(), storm.NameAt(0)); err == nil {
				locktest.Unlock(t, lock)
			}
			return back() == lost() && client.Stats().Unreachable == 0
		})
		for _, e := range locktest.EventsOf[redlatch.NodeUnreachable](events) {
			if e.Node != storm.Node || e.Err == nil {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A Cluster whose masters are all dead is observed as unreachable, also by a client that then wants only names in
// slots that it has not used.
func TestClusterObserverOfFreshNames(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c, client, events := newObservedCluster(t, binary)
		for _, master := range c.Masters {
			master.Kill()
		}
		fresh := storm.NamesAt(0, 100)[1:]
		tries := 0
		locktest.Await(t, "it is lost", func() bool {
			client.TryLock(t.Context(), fresh[tries%len(fresh)])
			tries++
			return len(locktest.EventsOf[redlatch.NodeUnreachable](events)) > 0 && client.Stats().Unreachable == 1
		})
	})
}

// All masters hang while a client is idle, which then finds that out by a try. When they go on, it only looks who holds a
// lock, and knows that the Cluster can be reached.
func TestClusterIsBackForAClientThatLooks(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c, client, _ := newObservedCluster(t, binary)
		for _, master := range c.Masters {
			must(t, master.Pause())
			t.Cleanup(func() { master.Resume() })
		}
		idle := time.Now()
		locktest.Await(t, "no master has answered", func() bool {
			if time.Since(idle) > 2*time.Second {
				client.TryLock(t.Context(), storm.NameAt(0))
			}
			return client.Stats().Unreachable == 1
		})
		for _, master := range c.Masters {
			must(t, master.Resume())
		}
		locktest.Await(t, "it is known that they answer", func() bool {
			oneshot.New(client).Query(t.Context(), storm.NameAt(0))
			return client.Stats().Unreachable == 0
		})
	})
}
