package locking

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

type ctxKey struct{}

// What Do runs has the lock, the caller's values and deadline; its error comes
// back and the lock is released.
func TestDo(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		c := locktest.Config(redistest.URLs(nodes)...)
		client, other := locktest.Open(t, c), locktest.Open(t, c)
		failure := errors.New("the work failed")
		for _, want := range []error{nil, failure} {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "value"), locktest.Patience)
			err := client.Do(ctx, t.Name(), func(ctx context.Context) error {
				if ctx.Value(ctxKey{}) != "value" {
					t.Error("the caller's values are missing")
				}
				if _, ok := ctx.Deadline(); !ok {
					t.Error("the caller's deadline is missing")
				}
				if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("inside: %v", err)
				}
				return want
			})
			cancel()
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%v, want %v", err, want)
			}
			for _, s := range nodes {
				locktest.AwaitValue(t, s, t.Name(), "")
			}
		}
	})
}

// A panic goes its way, and the lock is released.
func TestDoPanics(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	func() {
		defer func() {
			if r := recover(); r != "on purpose" {
				t.Errorf("recovered %v", r)
			}
		}()
		client.Do(t.Context(), t.Name(), func(context.Context) error { panic("on purpose") })
		t.Error("the panic was swallowed")
	}()
	for _, s := range nodes {
		locktest.AwaitValue(t, s, t.Name(), "")
	}
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
}

// The lock is lost while the work goes on: its ctx ends with ErrLost as the
// cause, and Do says so, whatever the work answers.
func TestDoLosesTheLock(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{nil, errors.New("the work failed")} {
		nodes := locktest.Shared(t, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		err := client.Do(t.Context(), t.Name(), func(ctx context.Context) error {
			for _, s := range nodes[:2] {
				locktest.Do(t, s, "SET", t.Name(), "theirs", "PX", "60000")
			}
			select {
			case <-ctx.Done():
			case <-time.After(locktest.Patience):
				t.Error("the ctx of the work does not end")
			}
			if !errors.Is(context.Cause(ctx), redlatch.ErrLost) || !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("%v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			return answer
		}, redlatch.WithTTL(1500*time.Millisecond))
		if !errors.Is(err, redlatch.ErrLost) || answer != nil && !errors.Is(err, answer) {
			t.Errorf("%v", err)
		}
		for _, s := range nodes[:2] {
			locktest.AwaitValue(t, s, t.Name(), "theirs")
			locktest.Do(t, s, "DEL", t.Name())
		}
	}
}

// The caller's ctx ends while the work goes on: that is no loss, and the lock is
// released although ctx is done.
func TestDoAndItsCallersCtx(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := client.Do(ctx, t.Name(), func(ctx context.Context) error {
		cancel(cause)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), cause) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, cause) || errors.Is(err, redlatch.ErrLost) {
		t.Errorf("%v", err)
	}
	for _, s := range nodes {
		locktest.AwaitValue(t, s, t.Name(), "")
	}
	ran := false
	if err := client.Do(ctx, t.Name(), func(context.Context) error { ran = true; return nil }); !errors.Is(err, cause) || ran {
		t.Errorf("with a ctx that is done: %v, ran %t", err, ran)
	}
}

// Close ends the work too.
func TestDoWhenTheClientCloses(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	err := client.Do(t.Context(), t.Name(), func(ctx context.Context) error {
		go client.Close()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("%v", err)
	}
	for _, s := range nodes {
		locktest.AwaitValue(t, s, t.Name(), "")
	}
}

// Locks inside locks, by several names.
func TestDoInsideDo(t *testing.T) {
	t.Parallel()
	client := locktest.Open(t, locktest.Config(redistest.URLs(locktest.Shared(t, 3))...))
	ran := false
	err := client.Do(t.Context(), t.Name()+"/outer", func(ctx context.Context) error {
		return client.Do(ctx, t.Name()+"/inner", func(ctx context.Context) error {
			_, err := client.TryLock(ctx, t.Name()+"/outer")
			if !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("%v", err)
			}
			ran = true
			return ctx.Err()
		})
	})
	if err != nil || !ran {
		t.Errorf("%v, ran %t", err, ran)
	}
}
