package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/redlatchtest"
)

// gate is an Observer that makes each release wait until it is open.
type gate struct {
	inside atomic.Int64
	open   chan struct{}
}

func (g *gate) Observe(_ context.Context, event redlatch.Event) {
	if _, ok := event.(redlatch.LockReleased); ok {
		g.inside.Add(1)
		<-g.open
	}
}

// holdMany makes a client acquire n locks.
func holdMany(t *testing.T, client *redlatchtest.Client, n int) []*redlatch.Lock {
	t.Helper()
	locks := make([]*redlatch.Lock, n)
	for i := range locks {
		var err error
		if locks[i], err = client.TryLock(t.Context(), fmt.Sprint("name-", i)); err != nil {
			t.Fatal(err)
		}
	}
	return locks
}

// Close releases many locks some at a time, and all of them in the end.
func TestCloseOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		client := redlatchtest.New(t, redlatch.Config{Observer: g})
		locks := holdMany(t, client, 3*redlatch.MaxReleases+1)
		closed := make(chan error)
		go func() { closed <- client.Close() }()
		synctest.Wait()
		if inside := g.inside.Load(); inside != redlatch.MaxReleases {
			t.Errorf("%d are released at once, want %d", inside, redlatch.MaxReleases)
		}
		close(g.open)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if released := g.inside.Load(); released != int64(len(locks)) {
			t.Errorf("%d of %d were released", released, len(locks))
		}
	})
}

// Close renews no locks. Those that run out before it comes to them are lost, and their holders are told.
func TestHoldersAreToldDuringClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		client := redlatchtest.New(t, redlatch.Config{TTL: time.Second, Observer: g})
		locks := holdMany(t, client, 2*redlatch.MaxReleases)
		var told atomic.Int64
		for _, l := range locks {
			context.AfterFunc(l.Context(), func() { told.Add(1) })
		}
		closed := make(chan error)
		go func() { closed <- client.Close() }()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := told.Load(); n != int64(len(locks)) {
			t.Errorf("%d of %d holders were told while Close was under way", n, len(locks))
		}
		close(g.open)
		<-closed
	})
}

// What Close says of thousands of locks is short, and errors.Is finds all of it.
func TestErrorOfMany(t *testing.T) {
	errs := make([]error, 3000)
	if err := redlatch.CloseError(errs); err != nil {
		t.Error(err)
	}
	for i := range errs {
		errs[i] = redlatch.ErrNoQuorum
	}
	errs[len(errs)-1] = redlatch.ErrRefused
	if err := redlatch.CloseError(errs); !errors.Is(err, redlatch.ErrRefused) || !errors.Is(err, redlatch.ErrNoQuorum) || len(err.Error()) > 1000 {
		t.Error(err)
	}
}

// When no node answers, Close takes no longer for many locks than for a few, and all of them are
// over.
func TestCloseOfManyWithoutNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodeTimeout = 50 * time.Millisecond
		events := new(locktest.Events)
		client := redlatchtest.New(t, redlatch.Config{NodeTimeout: nodeTimeout, Observer: events})
		locks := holdMany(t, client, 10*redlatch.MaxReleases)
		client.Delay(time.Minute) // longer than anybody waits for an answer
		start := time.Now()
		err := client.Close()
		if more := fmt.Sprintf("\nfurther locks that were not unlocked: %d", len(locks)-10); !errors.Is(err, redlatch.ErrNoQuorum) || strings.Count(err.Error(), "\n") != 10 || !strings.Contains(err.Error(), more) {
			t.Error(err)
		}
		if took := time.Since(start); took > 12*nodeTimeout {
			t.Errorf("it took %v", took)
		}
		// The Observer is told of those, too, for which no node was asked any more.
		told := locktest.EventsOf[redlatch.LockReleased](events)
		if len(told) != len(locks) {
			t.Errorf("%d of %d releases were observed", len(told), len(locks))
		}
		for _, e := range told {
			if !errors.Is(e.Err, redlatch.ErrNoQuorum) {
				t.Fatalf("observed: %+v", e)
			}
		}
		if held := client.Stats().Held; held != 0 {
			t.Errorf("%d locks are looked after", held)
		}
		for _, l := range locks {
			if !errors.Is(l.Err(), redlatch.ErrReleased) {
				t.Fatalf("%s: %v", l.Name(), l.Err())
			}
		}
	})
}

// Close takes no longer for locks that were lost, as no node answered, and of which something may be left.
func TestCloseOfManyLostWithoutNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, nodeTimeout = 10 * time.Second, 50 * time.Millisecond
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl, NodeTimeout: nodeTimeout})
		locks := holdMany(t, client, 10*redlatch.MaxReleases)
		client.Delay(time.Minute) // longer than anybody waits for an answer
		time.Sleep(ttl - ttl/15)  // in their guard
		if s := client.Stats(); s.Lost != uint64(len(locks)) || s.Held != len(locks) {
			t.Fatalf("before Close: %+v", s)
		}
		start := time.Now()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 16*nodeTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// deafToSets is a connection on which releases of several names are not answered.
type deafToSets struct{ driver.Conn }

func (c deafToSets) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if sha == script.ReleasingAll.SHA {
		<-ctx.Done()
		return driver.Reply{}, ctx.Err()
	}
	return c.Conn.EvalSHA(ctx, sha, keys, args)
}

// Close releases all locks of which the nodes hear, though they hear of as many others nothing.
func TestCloseBesideReleasesThatAreNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := memory.New(time.Now)
		client := locktest.OpenIn(t, redlatch.Config{NodeTimeout: 50 * time.Millisecond}, hook.Surroundings{
			Clock: clock.Awake(), Nodes: []hook.Node{{Name: "memory", Dial: func() driver.Conn { return deafToSets{n.Link().Dial()} }}},
		})
		const each = 3 * redlatch.MaxReleases
		for i := range each {
			_, err := client.TryLock(t.Context(), fmt.Sprint("heard-", i))
			if err == nil {
				_, err = client.LockAll(t.Context(), []string{fmt.Sprint("a-", i), fmt.Sprint("b-", i)})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := client.Close(); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Error(err)
		}
		left := 0
		for key, k := range n.Keys() {
			if k.Holder != "" && strings.HasPrefix(key, "heard-") {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d of %d are left", left, each)
		}
	})
}

// Close takes no longer where no node answers, and some of many locks are kept for WithMinHold, for which no node is asked.
func TestCloseOfManyAndKeptWithoutNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodeTimeout = 50 * time.Millisecond
		client := redlatchtest.New(t, redlatch.Config{NodeTimeout: nodeTimeout})
		holdMany(t, client, 5*redlatch.MaxReleases)
		for i := range 5 * redlatch.MaxReleases {
			if _, err := client.TryLock(t.Context(), fmt.Sprint("kept-", i), redlatch.WithMinHold(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		client.Delay(time.Minute) // longer than anybody waits for an answer
		start := time.Now()
		if err := client.Close(); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Error(err)
		}
		if took := time.Since(start); took > 12*nodeTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// ends is an Observer that is inside from when it is told of the end of a lock until it is open.
type ends struct{ inside, open chan struct{} }

func (e *ends) Observe(_ context.Context, event redlatch.Event) {
	switch event.(type) {
	case redlatch.LockLost, redlatch.LockReleased:
		close(e.inside)
		<-e.open
	}
}

// Close waits for whoever has found a lock lost, or detaches it, until the Observer was told: nothing is observed after it.
func TestCloseWaitsForTheObserver(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*redlatch.Lock){
		"lost":     func(*redlatch.Lock) {}, // by the clock
		"detached": func(l *redlatch.Lock) { _, _ = l.Detach() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := &ends{inside: make(chan struct{}), open: make(chan struct{})}
				client := redlatchtest.New(t, redlatch.Config{Observer: e})
				lock, err := client.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
				if err != nil {
					t.Fatal(err)
				}
				go end(lock)
				<-e.inside
				closed := make(chan error, 1)
				go func() { closed <- client.Close() }()
				time.Sleep(time.Minute)
				if len(closed) > 0 {
					t.Error("Close has returned while the Observer is being told")
				}
				close(e.open)
				<-closed
			})
		})
	}
}

// Whoever unlocks a lock is told that no node answers, though Close, or the end of the validity, comes before it has asked.
func TestUnlockIsToldWhatTheNodesSay(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*redlatchtest.Client){
		"Close":               func(client *redlatchtest.Client) { _ = client.Close() },
		"end of the validity": func(*redlatchtest.Client) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := redlatchtest.New(t, redlatch.Config{})
				lock, err := client.TryLock(t.Context(), "name")
				if err != nil {
					t.Fatal(err)
				}
				client.Delay(time.Hour) // longer than anybody waits for an answer
				goOn, over := redlatch.UnlockSlowly(lock), make(chan struct{})
				go func() {
					defer close(over)
					meanwhile(client)
				}()
				time.Sleep(time.Minute)
				if err := goOn(); !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Errorf("unlock: %v", err)
				}
				<-over
			})
		})
	}
}

// Close leaves nothing to do for locks that were lost, and that it does not come to.
func TestCloseEndsLostLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl})
		holdMany(t, client, 10*redlatch.MaxReleases)
		client.Delay(time.Minute) // longer than anybody waits for an answer
		time.Sleep(ttl - ttl/15)  // in their guard
		_ = client.Close()
		if held := client.Stats().Held; held > 0 {
			t.Errorf("%d locks are held after Close", held)
		}
	})
}

// Close leaves nothing to do for a lock that is kept for WithMinHold, also if it comes while Unlock is prolonging that.
func TestCloseEndsKeptLocks(t *testing.T) {
	t.Parallel()
	for _, prolonging := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const ttl, hold, late = 30 * time.Second, 29690 * time.Millisecond, 200 * time.Millisecond
			client := redlatchtest.New(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second})
			client.Delay(late) // the validity counts from the send, and WithMinHold from the grant
			lock, err := client.TryLock(t.Context(), "name", redlatch.WithMinHold(hold))
			if err != nil {
				t.Fatal(err)
			}
			unlocked := make(chan error, 1)
			go func() { unlocked <- lock.Unlock(t.Context()) }()
			if time.Sleep(late / 2); !prolonging {
				time.Sleep(late)
			}
			if prolonging != (len(unlocked) == 0) {
				t.Error("unlocked at another time")
			}
			_ = client.Close()
			if held := client.Stats().Held; held > 0 || len(client.Held()) != 1 {
				t.Errorf("prolonging %t: %d locks are held after Close, and the node has %v", prolonging, held, client.Held())
			}
			if err := <-unlocked; err != nil {
				t.Errorf("prolonging %t: %v", prolonging, err)
			}
		})
	}
}

// interrupting is a clock that closes a client as soon as it is read while the client holds a lock, and goes on when
// that is released.
type interrupting struct {
	clock.Clock
	t      *testing.T
	client atomic.Pointer[redlatch.Client]
	begun  atomic.Bool
	closed chan error
}

func (c *interrupting) Now() clock.Instant {
	if client := c.client.Load(); client != nil && client.Stats().Held > 0 && c.begun.CompareAndSwap(false, true) {
		go func() { c.closed <- client.Close() }()
		locktest.Await(c.t, "Close has released the lock", func() bool { return client.Stats().Held == 0 })
	}
	return c.Clock.Now()
}

// Close leaves no alarm behind for a lock that it releases while Lock is about to set that.
func TestCloseAmidLock(t *testing.T) {
	t.Parallel()
	node := memory.New(time.Now)
	machine := &interrupting{Clock: clock.System, t: t, closed: make(chan error, 1)}
	client := locktest.OpenIn(t, redlatch.Config{}, hook.Surroundings{
		Clock: machine, Nodes: []hook.Node{{Name: "a", Dial: func() driver.Conn { return node.Link().Dial() }}},
	})
	machine.client.Store(client)
	lock, err := client.Lock(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-machine.closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := lock.Err(); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("Err: %v", err)
	}
	if redlatch.WillRing(lock) {
		t.Error("the lock's alarm is still to ring")
	}
}
