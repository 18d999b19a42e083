package locking

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// removed has the locks of a test removed at its end, which would be kept for long.
func removed(t *testing.T, nodes []*redistest.Server, names ...string) {
	t.Cleanup(func() {
		for _, s := range nodes {
			for _, name := range names {
				locktest.Do(t, s, "DEL", name)
			}
		}
	})
}

// The next caller of a client, who goes on with what the last one had, has the lock for
// its WithMinHold all the same.
func TestMinHoldOfTheNextCaller(t *testing.T) {
	t.Parallel()
	const ttl, hold = 10 * time.Second, 20 * time.Second
	nodes := locktest.Shared(t, 3)
	removed(t, nodes, t.Name())
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	first, err := client.Lock(t.Context(), t.Name(), redlatch.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	var outs [2]<-chan locktest.Outcome // the first of them asks for a token more, for the second
	for i, options := range [][]redlatch.Option{{redlatch.WithTTL(ttl)}, {redlatch.WithTTL(ttl), redlatch.WithMinHold(hold)}} {
		report, waits := locktest.WhenWaiting(nil)
		outs[i] = locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), append(options, report)...)
		<-waits
	}
	locktest.Unlock(t, first)
	var before time.Time
	for i, out := range outs {
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if i == 0 {
			before = time.Now()
			locktest.Unlock(t, o.Lock)
		}
	}
	kept := 0
	for _, s := range nodes {
		if locktest.Remaining(t, s, t.Name()) >= hold-time.Since(before) {
			kept++
		}
	}
	if kept < 2 {
		t.Errorf("kept by %d nodes", kept)
	}
}

// Where the TTL cannot cover it, Unlock prolongs the lock, and says when it could not.
func TestMinHoldIsProlonged(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	removed(t, nodes, t.Name(), t.Name()+"/2")
	proxies := redistest.Proxies(t, nodes)
	wires := locktest.Taps(proxies)
	c := locktest.WithMaxTTL(locktest.Config(locktest.ProxyURLs(proxies)...), 20*time.Second)
	longest := c.MaxTTL - c.MaxTTL/100 - 2*time.Millisecond // all that MaxTTL leaves, from the start of the attempt
	client := locktest.Open(t, c)
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithMinHold(longest))
	locktest.Unlock(t, lock)
	extended := 0
	for _, w := range wires {
		extended += w.Count("extend")
	}
	if extended < 2 {
		t.Errorf("%d nodes were asked to keep it", extended)
	}

	lock = locktest.TryLock(t, client, t.Name()+"/2", redlatch.WithMinHold(longest))
	for _, s := range nodes {
		locktest.Await(t, "the lock is on "+s.Addr(), func() bool { return locktest.Value(t, s, lock.Name()) != "" })
	}
	for _, p := range proxies[:2] {
		p.BlackHole(redistest.Both, true)
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("two nodes do not answer: %v", err)
	}
	for _, s := range nodes {
		if locktest.Value(t, s, lock.Name()) == "" {
			t.Errorf("it is gone from %s", s.Addr())
		}
	}
}
