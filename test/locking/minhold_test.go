package locking

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
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

// closing is an Observer that has the client closed, as far as new calls can tell, before a call learns
// that it has its lock.
type closing struct {
	client *redlatch.Client
	closed chan error
}

func (c *closing) Observe(ctx context.Context, event redlatch.Event) {
	if _, ok := event.(redlatch.LockAcquired); !ok {
		return
	}
	go func() { c.closed <- c.client.Close() }()
	for !errors.Is(c.client.Admit(ctx, "none"), redlatch.ErrClosed) {
		storm.Rest(ctx, time.Millisecond)
	}
}

// A lock that is granted while the client is being closed is kept for its WithMinHold, too: the caller may
// have done its job by then.
func TestMinHoldThatCloseOvertakes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			const hold = 20 * time.Second
			nodes := locktest.Shared(t, n)
			removed(t, nodes, t.Name())
			c := locktest.Config(redistest.URLs(nodes)...)
			observer := &closing{closed: make(chan error, 1)}
			c.Observer = observer
			observer.client = locktest.Open(t, c)
			granted := time.Now()
			lock := locktest.TryLock(t, observer.client, t.Name(), redlatch.WithMinHold(hold), redlatch.WithTTL(time.Second))
			if err := lock.Err(); !errors.Is(err, redlatch.ErrReleased) {
				t.Errorf("the caller is told %v", err)
			}
			if err := <-observer.closed; err != nil {
				t.Error(err)
			}
			kept := 0
			for _, s := range nodes {
				if locktest.Remaining(t, s, t.Name()) >= hold-time.Since(granted) {
					kept++
				}
			}
			if kept <= n/2 {
				t.Errorf("%d of %d nodes keep the lock", kept, n)
			}
		})
	}
}

// WithMinHold keeps a lock for so long by the monotonic clock: the other one may be the wall clock, and stepped forward.
func TestMinHoldWhereTheOtherClockIsStepped(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	machine := &ticking{starved{Clock: clock.System}}
	dial := func(string) (driver.Conn, error) { return connTo(server.URL()) }
	client := locktest.OpenIn(t, locktest.Config(server.URL()), hook.Surroundings{Clock: machine, Dial: dial})
	const hold = 2 * time.Second
	began := time.Now()
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithMinHold(hold))
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	machine.slept.Store(int64(hold))
	next, err := client.Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if kept := time.Since(began); kept < hold {
		t.Errorf("kept for %v, less than %v", kept, hold)
	}
	locktest.Unlock(t, next)
}
