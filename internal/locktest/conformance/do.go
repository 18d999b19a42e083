package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

type ctxKey struct{}

// What Do runs has the lock, the caller's values and deadline; its error comes back and the lock
// is released.
func doResult(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
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
		awaitGone(t, s, t.Name())
	}
}

// A panic goes its way, and the lock is released.
func doPanics(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	func() {
		defer func() {
			if r := recover(); r != "on purpose" {
				t.Errorf("recovered %v", r)
			}
		}()
		client.Do(t.Context(), t.Name(), func(context.Context) error { panic("on purpose") })
		t.Error("the panic was swallowed")
	}()
	awaitGone(t, s, t.Name())
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
}

// The lock is lost while the work goes on: its ctx ends with ErrLost as the cause, and Do says so,
// whatever the work answers.
func doLosesTheLock(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	for _, answer := range []error{nil, errors.New("the work failed")} {
		client := s.Open(t, redlatch.Config{})
		err := client.Do(t.Context(), t.Name(), func(ctx context.Context) error {
			for i := range stolen(s) {
				s.Set(t, i, t.Name(), "theirs")
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
		for i := range stolen(s) {
			if v := s.Value(t, i, t.Name()); v != "theirs" {
				t.Errorf("another's key is now %q", v)
			}
			s.Set(t, i, t.Name(), "")
		}
		awaitGone(t, s, t.Name())
	}
}

// The caller's ctx ends while the work goes on: that is no loss, and the lock is released although
// ctx is done.
func doAndItsCallersContext(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
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
	awaitGone(t, s, t.Name())
}

// Close ends the work too.
func doWhenTheClientCloses(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	err := client.Do(t.Context(), t.Name(), func(ctx context.Context) error {
		go client.Close()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("%v", err)
	}
	awaitGone(t, s, t.Name())
}

// Locks inside locks, by several names.
func doInsideDo(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
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
