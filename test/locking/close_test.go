package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Close releases what is held and ends those who wait.
func TestClose(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		c := locktest.Config(redistest.URLs(nodes)...)
		client, other := locktest.Open(t, c), locktest.Open(t, c)
		theirs := locktest.TryLock(t, other, t.Name()+"/theirs")
		var locks []*redlatch.Lock
		for i := range 20 {
			locks = append(locks, locktest.TryLock(t, client, fmt.Sprintf("%s/%d", t.Name(), i)))
		}
		extended := locks[0]
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(t.Context(), client, theirs.Name(), report)
		<-waits
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if o := <-out; o.Lock != nil || !errors.Is(o.Err, redlatch.ErrClosed) || !errors.Is(o.Err, redlatch.ErrHeld) {
			t.Errorf("who waited has %v, %v", o.Lock, o.Err)
		}
		for _, lock := range locks {
			for _, s := range nodes {
				if v := locktest.Value(t, s, lock.Name()); v != "" {
					t.Errorf("%s is on %s after Close", lock.Name(), s.Addr())
				}
			}
			if !errors.Is(lock.Err(), redlatch.ErrReleased) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrReleased) {
				t.Errorf("%s is %v, its context ended by %v", lock.Name(), lock.Err(), context.Cause(lock.Context()))
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
				t.Errorf("unlock after Close: %v", err)
			}
		}
		if err := extended.Extend(t.Context(), time.Second); !errors.Is(err, redlatch.ErrReleased) {
			t.Errorf("extend after Close: %v", err)
		}
		if theirs.Err() != nil {
			t.Errorf("another client's lock is %v", theirs.Err())
		}
		locktest.Unlock(t, theirs)

		for what, err := range map[string]error{
			"TryLock": locktest.ErrorOf(client.TryLock(t.Context(), "x")),
			"Lock":    locktest.ErrorOf(client.Lock(t.Context(), "x")),
			"Do":      client.Do(t.Context(), "x", func(context.Context) error { t.Error("done"); return nil }),
			"Admit":   client.Admit(t.Context(), "n0"),
		} {
			if !errors.Is(err, redlatch.ErrClosed) {
				t.Errorf("%s after Close: %v", what, err)
			}
		}
		if err := client.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// Close meets calls at every stage. Whatever each was told, nothing is left,
// and who was told that it holds learns that it does not.
func TestCloseWhileLocking(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	for round := range 20 {
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		var late atomic.Bool // a busy machine's nodes have not answered a release in time, and may have its key
		var group sync.WaitGroup
		var mu sync.Mutex
		var kept []*redlatch.Lock
		for i := range 8 {
			group.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("%s/%d.%d.%d", t.Name(), round, i, n)
					lock, err := client.TryLock(t.Context(), name)
					switch {
					case errors.Is(err, redlatch.ErrClosed):
						return
					case errors.Is(err, redlatch.ErrNoQuorum), locktest.Late(err):
						continue // a starved machine
					case err != nil:
						t.Error(err)
						return
					}
					if i%2 == 0 {
						switch err := lock.Unlock(t.Context()); {
						case locktest.Late(err):
							late.Store(true)
						case err != nil && !errors.Is(err, redlatch.ErrReleased):
							t.Errorf("unlock: %v", err)
						}
					} else {
						mu.Lock()
						kept = append(kept, lock)
						mu.Unlock()
					}
				}
			})
		}
		locktest.Await(t, "locks are made", func() bool {
			return len(locktest.Do(t, nodes[0], "KEYS", fmt.Sprintf("%s/%d.*", t.Name(), round)).([]any)) > 3
		})
		switch err := client.Close(); {
		case locktest.Late(err):
			late.Store(true)
		case err != nil:
			t.Errorf("close: %v", err)
		}
		group.Wait()
		for _, lock := range kept {
			if !errors.Is(lock.Err(), redlatch.ErrReleased) {
				t.Errorf("after Close the lock is %v", lock.Err())
			}
		}
		if late.Load() {
			continue
		}
		for i, s := range nodes {
			if keys := locktest.Do(t, s, "KEYS", fmt.Sprintf("%s/%d.*", t.Name(), round)).([]any); len(keys) > 0 {
				t.Errorf("round %d: left on node %d: %v", round, i, keys)
			}
		}
	}
}

// Nodes that cannot be reached: Close ends all the same, in bounded time, and
// says that it could not see the lock released.
func TestCloseWithoutNodes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"refusing", "hung"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			c.NodeTimeout = 500 * time.Millisecond
			client := locktest.Open(t, c)
			lock := locktest.TryLock(t, client, t.Name())
			for _, p := range proxies {
				if name == "hung" {
					p.HoldBack(redistest.Requests, true)
					continue
				}
				if err := p.Refuse(true); err != nil {
					t.Fatal(err)
				}
				p.Cut()
			}
			start := time.Now()
			err := client.Close()
			t.Logf("closed after %v: %v", time.Since(start).Round(time.Millisecond), err)
			if !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("close: %v", err)
			}
			if time.Since(start) > locktest.Patience {
				t.Errorf("closed after %v", time.Since(start))
			}
			if !errors.Is(lock.Err(), redlatch.ErrReleased) {
				t.Errorf("the lock is %v", lock.Err())
			}
			for _, s := range nodes {
				locktest.Do(t, s, "DEL", t.Name())
			}
		})
	}
}
