package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
)

// openSingly opens a client that takes several names one by one, and returns its node, where another has the lock "b".
func openSingly(t *testing.T, config redlatch.Config) (*redlatch.Client, *memory.Node) {
	t.Helper()
	n := memory.New(time.Now)
	n.Set("b", "other", time.Hour)
	return locktest.OpenIn(t, config, hook.Surroundings{
		Clock: clock.Awake(), Singly: true,
		Nodes: []hook.Node{{Name: "memory", Dial: func() driver.Conn { return n.Link().Dial() }}},
	}), n
}

// lockBoth has the client wait for "b", and have "a" meanwhile. id is the holder of "a".
func lockBoth(ctx context.Context, t *testing.T, c *redlatch.Client, n *memory.Node, options ...redlatch.Option) (id string, got <-chan error) {
	t.Helper()
	errs := make(chan error, 1)
	go func() {
		_, err := c.LockAll(ctx, []string{"a", "b"}, options...)
		errs <- err
	}()
	time.Sleep(time.Millisecond)
	if id = n.Keys()["a"].Holder; id == "" || id == "other" {
		t.Errorf("a is held by %q", id)
	}
	return id, errs
}

// Names that are taken one by one become one lock, in whichever order they are given.
func TestNamesTakenOneByOne(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"a", "c", "d"}, {"a", "d", "c"}, {"d", "c", "a"}} {
		c, _ := openSingly(t, redlatch.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // by a real clock: tries that fail take no time
		defer cancel()
		lock, err := c.LockAll(ctx, names)
		if err != nil {
			t.Fatalf("%q: %v", names, err)
		}
		locktest.Unlock(t, lock)
	}
}

// A name that a call has while it waits for another is kept as long as it waits, and given back at once when it ends, whatever
// its options say of the lock of all names.
func TestOptionsAreNotForOneName(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]struct {
		option redlatch.Option
		wait   time.Duration
	}{
		"WithoutRenewal": {redlatch.WithoutRenewal(), 9 * time.Second},
		"WithMaxHold":    {redlatch.WithMaxHold(3 * time.Second), 9 * time.Second},
		"WithMinHold":    {redlatch.WithMinHold(time.Second), time.Second / 10},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, n := openSingly(t, redlatch.Config{TTL: 2 * time.Second})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				id, got := lockBoth(ctx, t, c, n, o.option)
				for began := time.Now(); time.Since(began) < o.wait; time.Sleep(o.wait / 100) {
					if now := n.Keys()["a"].Holder; now != id {
						t.Fatalf("after %v %q has it, and not %q", time.Since(began), now, id)
					}
				}
				cancel()
				if err := <-got; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if now := n.Keys()["a"].Holder; now != "" {
					t.Errorf("left: %q", now)
				}
			})
		})
	}
}

// A call that has lost a name while it waits for another does not go on to wait for that: it waits for the one that it lost.
func TestLossOfOneNameEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n := openSingly(t, redlatch.Config{TTL: 2 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		id, got := lockBoth(ctx, t, c, n)
		n.Delete("a", id, "a")
		n.Set("a", "thief", time.Hour)
		time.Sleep(2 * time.Second)
		cancel()
		err := <-got
		if f := locktest.FailureOf(t, err); f.Name != "a" || f.Nodes[0].Holder.ID != "thief" {
			t.Errorf("it waits for %q: %v", f.Name, err)
		}
	})
}

// Whichever way a lock ends, the client does not count it any more among those that are to be renewed, of which it has no more
// than it can renew in time; and no lock is discounted twice.
func TestRenewalsOfLocksThatAreOver(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*testing.T, *redlatch.Client, *memory.Node, *redlatch.Lock){
		"unlocked": func(t *testing.T, _ *redlatch.Client, _ *memory.Node, l *redlatch.Lock) {
			_, _ = l.Unlock(t.Context()), l.Unlock(t.Context())
		},
		"detached": func(t *testing.T, _ *redlatch.Client, _ *memory.Node, l *redlatch.Lock) {
			_, _ = l.Detach()
			_ = l.Unlock(t.Context())
		},
		"lost, and then unlocked": func(t *testing.T, _ *redlatch.Client, n *memory.Node, l *redlatch.Lock) {
			n.Delete("name", n.Keys()["name"].Holder, "name")
			n.Set("name", "thief", time.Hour)
			time.Sleep(time.Minute)
			_ = l.Unlock(t.Context())
		},
		"closed": func(_ *testing.T, c *redlatch.Client, _ *memory.Node, _ *redlatch.Lock) { _ = c.Close() },
		"of names taken one by one": func(t *testing.T, c *redlatch.Client, n *memory.Node, l *redlatch.Lock) {
			_, got := lockBoth(t.Context(), t, c, n)
			n.Delete("b", "other", "b")
			if err := <-got; err != nil {
				t.Error(err)
			}
			_ = l.Unlock(t.Context())
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, n := openSingly(t, redlatch.Config{})
				renewed := redlatch.CountRenewals(c)
				lock, err := c.TryLock(t.Context(), "name")
				if err != nil {
					t.Fatal(err)
				}
				if renewed.Load() == 0 {
					t.Error("it is not counted")
				}
				end(t, c, n, lock)
				if left := renewed.Load(); left != 0 {
					t.Errorf("%d renewals an hour are counted without a lock", left)
				}
			})
		})
	}
}
