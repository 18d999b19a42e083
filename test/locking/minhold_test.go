package locking

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
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

// TryDo runs fn if the lock is free, and says at once that it is held.
func TestTryDo(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		c := locktest.Config(redistest.URLs(nodes)...)
		client, other := locktest.Open(t, c), locktest.Open(t, c)
		ran, failure := 0, errors.New("the work failed")
		err := client.TryDo(t.Context(), t.Name(), func(ctx context.Context) error {
			ran++
			for name, c := range map[string]*redlatch.Client{"another client": other, "the same client": client} {
				err := c.TryDo(ctx, t.Name(), func(context.Context) error { ran++; return nil })
				if !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("%s: %v", name, err)
				}
			}
			return failure
		})
		if err != failure && !errors.Is(err, failure) || ran != 1 {
			t.Errorf("%v, ran %d times", err, ran)
		}
		for _, s := range nodes {
			locktest.AwaitValue(t, s, t.Name(), "")
		}
		if err := client.TryDo(t.Context(), t.Name(), nil); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("without fn: %v", err)
		}
	})
}

// The lock is kept for WithMinHold though fn has returned, or panicked, while its caller
// goes on; then whoever waits gets it, long before its TTL is over.
func TestMinHold(t *testing.T) {
	t.Parallel()
	const hold = 1500 * time.Millisecond
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for name, waiterIn := range map[string]func(same, other *redlatch.Client) *redlatch.Client{
			"of another client": func(_, other *redlatch.Client) *redlatch.Client { return other },
			"of the same":       func(same, _ *redlatch.Client) *redlatch.Client { return same },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := locktest.Config(redistest.URLs(locktest.SharedOf(t, binary, 3))...)
				client, other := locktest.Open(t, c), locktest.Open(t, c)
				waiter := waiterIn(client, other)
				for _, panics := range []bool{false, true} {
					do := func() error {
						defer func() { recover() }()
						return client.TryDo(t.Context(), t.Name(), func(context.Context) error {
							if panics {
								panic("on purpose")
							}
							return nil
						}, redlatch.WithMinHold(hold))
					}
					before := time.Now()
					err := do()
					// Where nodes of a busy machine were late, again, until what that try left is gone.
					for start, busy := before, locktest.Late(err); busy && err != nil && time.Since(start) < locktest.Patience; {
						storm.Rest(t.Context(), time.Millisecond)
						before = time.Now()
						err = do()
					}
					if err != nil {
						t.Errorf("%v", err)
					}
					lock, err := other.TryLock(t.Context(), t.Name())
					if time.Since(before) < hold && !errors.Is(err, redlatch.ErrHeld) && !locktest.Late(err) {
						t.Errorf("tried after the job: %v", err)
					}
					if err != nil {
						lock, err = waiter.Lock(locktest.Within(t, locktest.Patience), t.Name())
						if err != nil {
							t.Fatal(err)
						}
						if after := time.Since(before); after < hold {
							t.Errorf("had by another %v after the grant", after)
						}
					}
					locktest.Unlock(t, lock)
				}
			})
		}
	})
}

// Callers of one client wait for each other's WithMinHold, in turn.
func TestMinHoldOfEachCaller(t *testing.T) {
	t.Parallel()
	const hold, callers = 300 * time.Millisecond, 3
	client := locktest.Open(t, locktest.Config(redistest.URLs(locktest.Shared(t, 3))...))
	before := time.Now()
	for range callers {
		if err := client.Do(locktest.Within(t, locktest.Patience), t.Name(), func(context.Context) error { return nil }, redlatch.WithMinHold(hold)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(before); took < (callers-1)*hold {
		t.Errorf("%d callers were done after %v", callers, took)
	}
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

// A lock that was unlocked is over for its holder, once, also while it is kept.
func TestMinHoldAndTheLock(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	removed(t, nodes, t.Name())
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithMinHold(15*time.Second))
	locktest.Unlock(t, lock)
	if !errors.Is(lock.Err(), redlatch.ErrReleased) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrReleased) {
		t.Errorf("%v, context ended by %v", lock.Err(), context.Cause(lock.Context()))
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("unlocked again: %v", err)
	}
	if err := lock.Extend(t.Context(), time.Second); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("extended: %v", err)
	}
}

// Whatever becomes of the client, the servers keep the lock for WithMinHold: when it was
// unlocked or not, and closed or not.
func TestMinHoldOutlivesTheClient(t *testing.T) {
	t.Parallel()
	const hold = 20 * time.Second
	nodes := locktest.Shared(t, 3)
	for name, end := range map[string]func(*redlatch.Client, *redlatch.Lock) error{
		"granted":             func(*redlatch.Client, *redlatch.Lock) error { return nil },
		"unlocked":            func(_ *redlatch.Client, l *redlatch.Lock) error { return l.Unlock(t.Context()) },
		"closed":              func(c *redlatch.Client, _ *redlatch.Lock) error { return c.Close() },
		"unlocked and closed": func(c *redlatch.Client, l *redlatch.Lock) error { return errors.Join(l.Unlock(t.Context()), c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			removed(t, nodes, t.Name())
			client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
			before := time.Now()
			lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(2*time.Second), redlatch.WithMinHold(hold))
			if err := end(client, lock); err != nil {
				t.Fatal(err)
			}
			kept := 0
			for _, s := range nodes {
				left := locktest.Remaining(t, s, t.Name())
				if left >= hold-time.Since(before) {
					kept++
				}
				if left > hold+5*time.Second {
					t.Errorf("kept for %v", left)
				}
			}
			if kept < 2 {
				t.Errorf("kept by %d nodes", kept)
			}
		})
	}
}

// Where the TTL cannot cover it, Unlock prolongs the lock, and says when it could not.
func TestMinHoldIsProlonged(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	removed(t, nodes, t.Name(), t.Name()+"/2")
	proxies := redistest.Proxies(t, nodes)
	wires := locktest.Taps(proxies)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.MaxTTL = 20 * time.Second
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

// A lock that was lost is not kept.
func TestMinHoldOfALostLock(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	removed(t, nodes, t.Name())
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(time.Second), redlatch.WithMinHold(15*time.Second))
	for _, s := range nodes[:2] {
		locktest.Do(t, s, "DEL", t.Name())
		locktest.Do(t, s, "SET", t.Name(), "theirs", "PX", "60000")
	}
	<-lock.Context().Done()
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("%v", err)
	}
	locktest.AwaitValue(t, nodes[2], t.Name(), "")
}

// What cannot be kept is refused before anything is sent, by the name of the option.
func TestMinHoldRefused(t *testing.T) {
	t.Parallel()
	client := locktest.Open(t, locktest.Config(redistest.URLs(locktest.Shared(t, 1))...))
	for _, options := range [][]redlatch.Option{
		{redlatch.WithMinHold(-1)},
		{redlatch.WithMinHold(30 * time.Second)}, // MaxTTL, which loses the drift
		{redlatch.WithMinHold(time.Hour)},
		{redlatch.WithMinHold(10 * time.Second), redlatch.WithMaxHold(5 * time.Second)},
	} {
		_, err := client.TryLock(t.Context(), t.Name(), options...)
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "WithMinHold") {
			t.Errorf("%v", err)
		}
	}
	if _, err := client.TryLock(t.Context(), t.Name()); err != nil {
		t.Error(err)
	}
}
