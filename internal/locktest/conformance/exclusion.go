package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// What one holds nobody else gets, of its own client or another, and who holds next has a larger
// token.
func oneHolder(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	last := uint64(0)
	for round := range 4 {
		lock := locktest.TryLock(t, []Client{client, other}[round%2], t.Name(), redlatch.WithLabel("holder"))
		if lock.Token() <= last {
			t.Errorf("token %d follows %d", lock.Token(), last)
		}
		last = lock.Token()
		for _, c := range []Client{client, other} {
			_, err := locktest.TryInTime(t, c, t.Name())
			if !errors.Is(err, redlatch.ErrHeld) {
				t.Fatalf("held, and tried: %v", err)
			}
			if holder, left, ok := locktest.FailureOf(t, err).Holder(); !ok || holder.Label != "holder" || left <= 0 {
				t.Errorf("held by %v for %v", holder, left)
			}
		}
		locktest.Unlock(t, lock)
		awaitGone(t, s, t.Name())
	}
}

// Many callers of several clients have the lock one at a time, under growing tokens.
func manyCallers(t *testing.T, s Stage) {
	const clients, callers, rounds = 3, 4, 5
	gate := &locktest.Turnstile{T: t}
	ctx := locktest.Within(t, locktest.Patience)
	var group sync.WaitGroup
	for i := range clients {
		client := s.Open(t, redlatch.Config{})
		for range callers {
			group.Go(func() {
				for range rounds {
					lock, err := client.Lock(ctx, t.Name())
					if err != nil {
						t.Error(err)
						return
					}
					gate.Pass(lock, fmt.Sprint(i))
				}
			})
		}
	}
	group.Wait()
	if passed := gate.Passed(); passed != clients*callers*rounds {
		t.Errorf("%d had the lock", passed)
	}
	awaitGone(t, s, t.Name())
}

// Those who wait get the lock in the order in which they came.
func inOrder(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	first := locktest.TryLock(t, s.Open(t, redlatch.Config{}), t.Name())
	var outs []<-chan locktest.Outcome
	for range 5 {
		report, waits := locktest.WhenWaiting(nil)
		outs = append(outs, locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report))
		<-waits
	}
	gate := &locktest.Turnstile{T: t}
	var group sync.WaitGroup
	for i, out := range outs {
		group.Go(func() { gate.PassNext(out, fmt.Sprint(i)) })
	}
	locktest.Unlock(t, first)
	group.Wait()
	if got := gate.Whole(); got != "0 1 2 3 4" {
		t.Errorf("the order was %s", got)
	}
}

// So do those of several clients, each as soon as it is free. A busy machine may be late, or somebody
// miss his turn, but not each time.
func inOrderOfClients(t *testing.T, s Stage) {
	first := s.Open(t, redlatch.Config{})
	clients := [4]Client{s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})}
	var order string
	var took time.Duration
	for range 20 {
		order, took = orderOf(t, locktest.TryLock(t, first, t.Name()), clients)
		if order == "0 1 2 3" && took < soon {
			return
		}
		awaitGone(t, s, t.Name())
	}
	t.Errorf("the order was %s, and took %v", order, took)
}

// orderOf has a waiter of each client come, and returns in which order they had the lock, and how long all of
// them took since its release.
func orderOf(t *testing.T, held *redlatch.Lock, clients [4]Client) (string, time.Duration) {
	t.Helper()
	gate := &locktest.Turnstile{T: t}
	var group sync.WaitGroup
	for i, client := range clients {
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, held.Name(), report)
		select {
		case <-waits:
		case <-held.Context().Done(): // it was lost, and nobody may have to wait
		}
		time.Sleep(10 * time.Millisecond) // its place may be asked for after the report
		group.Go(func() { gate.PassNext(out, fmt.Sprint(i)) })
	}
	locktest.Unlock(t, held)
	start := time.Now()
	group.Wait()
	return gate.Whole(), time.Since(start)
}

// TryDo runs fn if the lock is free, and says at once that it is held.
func tryDo(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	ran, failure := 0, errors.New("the work failed")
	err := client.TryDo(t.Context(), t.Name(), func(ctx context.Context) error {
		ran++
		for name, c := range map[string]Client{"another client": other, "the same client": client} {
			err := c.TryDo(ctx, t.Name(), func(context.Context) error { ran++; return nil })
			if !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return failure
	})
	if !errors.Is(err, failure) || ran != 1 {
		t.Errorf("%v, ran %d times", err, ran)
	}
	awaitGone(t, s, t.Name())
	if err := client.TryDo(t.Context(), t.Name(), nil); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("without fn: %v", err)
	}
}

// A waiter whose ctx ends is told why and what it waited for, and has left nothing behind.
func cancelledWaiter(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name())
	cause := errors.New("the caller's own cause")
	for name, c := range map[string]Client{"another client": other, "the same client": client} {
		ctx, cancel := context.WithCancelCause(t.Context())
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(ctx, c, t.Name(), report)
		<-waits
		cancel(cause)
		if o := <-out; o.Lock != nil || !errors.Is(o.Err, cause) || !errors.Is(o.Err, redlatch.ErrHeld) && !locktest.Late(o.Err) {
			t.Errorf("%s: %v, %v", name, o.Lock, o.Err)
		}
	}
	if lock.Err() != nil {
		t.Errorf("the holder: %v", lock.Err())
	}
	locktest.Unlock(t, lock)
	awaitGone(t, s, t.Name())
	// One who was woken up when it had gone passes that on.
	next, err := other.Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, next)
}

// With a ctx that is done nothing is acquired.
func doneContext(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for what, err := range map[string]error{
		"Lock":    locktest.ErrorOf(client.Lock(ctx, t.Name())),
		"TryLock": locktest.ErrorOf(client.TryLock(ctx, t.Name())),
		"Do":      client.Do(ctx, t.Name(), func(context.Context) error { t.Error("done"); return nil }),
		"TryDo":   client.TryDo(ctx, t.Name(), func(context.Context) error { t.Error("done"); return nil }),
	} {
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", what, err)
		}
	}
	awaitGone(t, s, t.Name())
}

// Close releases what is held and ends those who wait, and nothing is acquired after it.
func closed(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	theirs := locktest.TryLock(t, other, t.Name()+"/theirs")
	lock := locktest.TryLock(t, client, t.Name())
	report, waits := locktest.WhenWaiting(nil)
	out := locktest.LockIn(t.Context(), client, theirs.Name(), report)
	<-waits
	if err := client.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if o := <-out; o.Lock != nil || !errors.Is(o.Err, redlatch.ErrClosed) || !errors.Is(o.Err, redlatch.ErrHeld) {
		t.Errorf("who waited has %v, %v", o.Lock, o.Err)
	}
	awaitGone(t, s, t.Name())
	if !errors.Is(lock.Err(), redlatch.ErrReleased) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrReleased) {
		t.Errorf("the lock is %v, its context ended by %v", lock.Err(), context.Cause(lock.Context()))
	}
	if theirs.Err() != nil {
		t.Errorf("another client's lock is %v", theirs.Err())
	}
	locktest.Unlock(t, theirs)
	if _, err := client.TryLock(t.Context(), t.Name()); !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}
