package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Lock waits for a lock.
func Lock(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) *redlatch.Lock {
	t.Helper()
	l, err := c.Lock(Within(t, Patience), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Unlock releases one that is held. The servers of a busy machine may not say so in time.
func Unlock(t *testing.T, l *redlatch.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil && !late(err) {
		t.Fatal(err)
	}
}

// late reports whether err says only that the servers did not answer in time, or that a session had to be made anew.
func late(err error) bool {
	return errors.Is(err, redlatch.ErrNoQuorum) && !errors.Is(err, redlatch.ErrHeld)
}

// Await waits until check is true.
func Await(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", Patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Outcome is what Lock returned.
type Outcome struct {
	Lock *redlatch.Lock
	Err  error
	At   time.Time
}

// LockIn starts a Lock, and returns where its Outcome will be, when it is in the queue, or has not been
// for some seconds.
func LockIn(t *testing.T, c *redlatch.Client, name string, options ...redlatch.Option) <-chan Outcome {
	t.Helper()
	out, waits := make(chan Outcome, 1), make(chan struct{}, 100)
	options = append(options, redlatch.WithWaitReport(func(error) {
		select {
		case waits <- struct{}{}:
		default:
		}
	}))
	ctx := Within(t, Patience)
	go func() {
		l, err := c.Lock(ctx, name, options...)
		out <- Outcome{l, err, time.Now()}
	}()
	for range 2 { // it was told of a failed try, and then of its place
		select {
		case <-waits:
		case <-time.After(2 * time.Second):
		}
	}
	return out
}

// awaitWaiters waits until n wait for a lock, as c is told: a machine may be too busy for LockIn to see them there.
func awaitWaiters(t *testing.T, c *redlatch.Client, name string, n int) {
	t.Helper()
	Await(t, fmt.Sprintf("%d wait", n), func() bool {
		waiting, err := c.Waiters(t.Context(), name)
		if err != nil && !late(err) {
			t.Fatal(err)
		}
		return len(waiting) == n
	})
}

// Extend tries until a lock is extended, which it must be before it is lost.
func Extend(t *testing.T, held *redlatch.Lock) {
	t.Helper()
	Await(t, "it is extended", func() bool {
		err := held.Extend(t.Context(), Patient.TTL)
		if errors.Is(err, redlatch.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// Within returns a ctx of the test that ends after d.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
