package oneshot_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/oneshot"
)

// A lock that was detached outlives its client, and is released by its id.
func TestDetach(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), t.Name()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	client, other := locktest.Open(t, c), newCaller(t, c, oneshot.CommandsAuto)
	lock := locktest.TryLock(t, client, name, redlatch.WithLabel("somebody"))
	id, err := lock.Detach()
	if err != nil {
		t.Fatal(err)
	}
	<-lock.Context().Done()
	if _, again := lock.Detach(); !errors.Is(again, redlatch.ErrReleased) || !errors.Is(lock.Unlock(ctx), redlatch.ErrReleased) || !errors.Is(lock.Extend(ctx, time.Second), redlatch.ErrReleased) {
		t.Errorf("detached, it is %v", lock.Err())
	}
	if held := client.Stats().Held; held != 0 {
		t.Errorf("%d held", held)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	h := inspect(t, other, name)
	if h.Holder.ID != id || h.Holder.Label != "somebody" || h.Left <= 0 || len(h.Nodes) != 3 {
		t.Errorf("held by %+v", h)
	}
	extends(t, true, other, name, id, 20*time.Second)
	is(t, true)(other.Release(ctx, name, id))
	for _, server := range nodes {
		locktest.AwaitValue(t, server, name, "")
	}

	// The client that detached it waits for it like everybody else.
	id, err = locktest.TryLock(t, other.locks, name, redlatch.WithTTL(30*time.Second)).Detach()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locktest.TryInTime(t, other.locks, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("detached: %v", err)
	}
	is(t, true)(other.Release(ctx, name, id))
	next, err := other.locks.Lock(locktest.Within(t, locktest.Patience), name)
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, next)

	released := locktest.TryLock(t, other.locks, name)
	locktest.Unlock(t, released)
	if _, err := released.Detach(); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("released: %v", err)
	}
}

// A lock that was detached ends after its TTL, and later if it was extended by its id.
func TestDetachedEnds(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.SharedOf(t, binary, n)
				c := locktest.Config(redistest.URLs(nodes)...)
				other := newCaller(t, c, oneshot.CommandsAuto)
				const ttl = 2 * time.Second // in which a busy machine may not detach and extend it, but not each time
				var id string
				var before time.Time
				locktest.UntilKept(t, 20, func(int) error {
					client := locktest.Open(t, c)
					lock, err := locktest.TryInTime(t, client, t.Name(), redlatch.WithTTL(ttl))
					if err != nil {
						return err
					}
					id, err = lock.Detach()
					if err := errors.Join(err, client.Close()); err != nil {
						return err
					}
					before = time.Now()
					kept, err := other.Extend(t.Context(), t.Name(), id, ttl)
					if err == nil && !kept {
						err = redlatch.ErrLost
					}
					return err
				})
				next, err := other.locks.Lock(locktest.Within(t, locktest.Patience), t.Name())
				if err != nil {
					t.Fatal(err)
				}
				if passed := time.Since(before); passed < ttl*99/100 {
					t.Errorf("another has it after %v, want %v", passed, ttl)
				}
				extends(t, false, other, t.Name(), id, locktest.TTL)
				locktest.Unlock(t, next)
			})
		}
	})
}

// lateConn is a connection that sends an acquire step only after a release was sent, or not at all once the
// step's time is over.
type lateConn struct {
	*redisconn.Conn
	released chan struct{}
	once     *sync.Once
}

func (c lateConn) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if args[0] == script.Acquire {
		select {
		case <-c.released:
		case <-ctx.Done():
		}
	}
	reply, err := c.Conn.EvalSHA(ctx, sha, keys, args)
	if sha == script.Releasing.SHA {
		c.once.Do(func() { close(c.released) })
	}
	return reply, err
}

// A lock is detached and released by its id while a node is still to be asked for it: no key comes after
// the release.
func TestDetachWhileANodeIsToBeAsked(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	admit := locktest.Open(t, c)
	locktest.Unlock(t, locktest.TryLock(t, admit, t.Name()))
	client := locktest.OpenIn(t, c, hook.Surroundings{Dial: func(name string) (driver.Conn, error) {
		url, _, _ := strings.Cut(c.Nodes[name[1]-'0'], "#")
		options, _, err := redisconn.Parse(url)
		if err != nil {
			return nil, err
		}
		options.ConnectTimeout = locktest.Patience
		conn, err := redisconn.New(options)
		if name != "n2" || err != nil {
			return conn, err
		}
		return lateConn{conn, make(chan struct{}), new(sync.Once)}, nil
	}})
	lock := locktest.TryLock(t, client, t.Name())
	id, err := lock.Detach()
	if err != nil {
		t.Fatal(err)
	}
	is(t, true)(oneshot.New(client).Release(t.Context(), t.Name(), id))
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	for i, server := range nodes {
		if v := locktest.Value(t, server, t.Name()); v != "" {
			t.Errorf("node %d has %q", i, v)
		}
	}
}
