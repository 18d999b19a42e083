package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Close releases what is held and ends those who wait.
func TestClose(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := sharedOf(t, binary, 3)
		c := config(redistest.URLs(nodes)...)
		client, other := open(t, c), open(t, c)
		theirs := tryLock(t, other, t.Name()+"/theirs")
		var locks []*redlatch.Lock
		for i := range 20 {
			locks = append(locks, tryLock(t, client, fmt.Sprintf("%s/%d", t.Name(), i)))
		}
		extended := locks[0]
		report, waits := waiting(nil)
		out := lockIn(t.Context(), client, theirs.Name(), report)
		<-waits
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if o := <-out; o.lock != nil || !errors.Is(o.err, redlatch.ErrClosed) || !errors.Is(o.err, redlatch.ErrHeld) {
			t.Errorf("who waited has %v, %v", o.lock, o.err)
		}
		for _, lock := range locks {
			for _, s := range nodes {
				if v := value(t, s, lock.Name()); v != "" {
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
		unlock(t, theirs)

		for what, err := range map[string]error{
			"TryLock": second(client.TryLock(t.Context(), "x")),
			"Lock":    second(client.Lock(t.Context(), "x")),
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

func second[T any](_ T, err error) error { return err }

// Close meets calls at every stage. Whatever each was told, nothing is left,
// and who was told that it holds learns that it does not.
func TestCloseWhileLocking(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 3)
	for round := range 20 {
		client := open(t, config(redistest.URLs(nodes)...))
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
					case errors.Is(err, redlatch.ErrNoQuorum):
						continue // a starved machine
					case err != nil:
						t.Error(err)
						return
					}
					if i%2 == 0 {
						if err := lock.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrReleased) {
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
		await(t, "locks are made", func() bool { return len(do(t, nodes[0], "KEYS", fmt.Sprintf("%s/%d.*", t.Name(), round)).([]any)) > 3 })
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		group.Wait()
		for _, lock := range kept {
			if !errors.Is(lock.Err(), redlatch.ErrReleased) {
				t.Errorf("after Close the lock is %v", lock.Err())
			}
		}
		for i, s := range nodes {
			if keys := do(t, s, "KEYS", fmt.Sprintf("%s/%d.*", t.Name(), round)).([]any); len(keys) > 0 {
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
			nodes := shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			c := config(proxyURLs(proxies)...)
			c.NodeTimeout = 500 * time.Millisecond
			client := open(t, c)
			lock := tryLock(t, client, t.Name())
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
			if time.Since(start) > patience {
				t.Errorf("closed after %v", time.Since(start))
			}
			if !errors.Is(lock.Err(), redlatch.ErrReleased) {
				t.Errorf("the lock is %v", lock.Err())
			}
			for _, s := range nodes {
				do(t, s, "DEL", t.Name())
			}
		})
	}
}
