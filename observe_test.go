package redlatch_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// errorsOf returns the errors that seq yields.
func errorsOf[T any](seq iter.Seq2[T, error]) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, err := range seq {
			if !yield(err) {
				return
			}
		}
	}
}

// When the ctx of an observer is done, nothing more is yielded, not even that the client was closed.
func TestObserveAfterItsEnd(t *testing.T) {
	t.Parallel()
	for name, observe := range map[string]func(*redlatchtest.Client, context.Context) iter.Seq[error]{
		"Observe": func(c *redlatchtest.Client, ctx context.Context) iter.Seq[error] {
			return errorsOf(c.Observe(ctx, "name"))
		},
		"ObservePermits": func(c *redlatchtest.Client, ctx context.Context) iter.Seq[error] {
			return errorsOf(c.ObservePermits(ctx, "name"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, done := range []bool{true, false} {
					client := redlatchtest.New(t, redlatch.Config{})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var yielded []error
					for err := range observe(client, ctx) {
						if yielded = append(yielded, err); len(yielded) > 1 {
							continue
						}
						if done {
							cancel()
						}
						_ = client.Close()
					}
					if want := map[bool]int{true: 1, false: 2}[done]; len(yielded) != want || !done && !errors.Is(yielded[1], redlatch.ErrClosed) {
						t.Errorf("ctx is done: %t; yielded: %v", done, yielded)
					}
					for err := range observe(client, ctx) {
						if done || !errors.Is(err, redlatch.ErrClosed) {
							t.Errorf("ctx is done: %t; a new range yields %v", done, err)
						}
					}
				}
			})
		})
	}
}

// When the ctx of an observer ends while it looks, it yields nothing of that look.
func TestObserveEndsInALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		client.Delay(20 * time.Millisecond)
		for name, observe := range map[string]func(ctx context.Context) iter.Seq[error]{
			"Observe":        func(ctx context.Context) iter.Seq[error] { return errorsOf(client.Observe(ctx, "name")) },
			"ObservePermits": func(ctx context.Context) iter.Seq[error] { return errorsOf(client.ObservePermits(ctx, "name")) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			for err := range observe(ctx) {
				t.Errorf("%s yields %v", name, err)
			}
			cancel()
		}
	})
}

// Who observes one of several names learns at once that its own client has acquired and released them.
func TestObserveOneOfSeveralNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "b", "c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := redlatchtest.New(t, redlatch.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				seen := make(chan redlatch.Holder)
				go func() {
					for holder := range client.Observe(ctx, name) { // until ctx is done
						seen <- holder
					}
				}()
				<-seen // nobody
				start := time.Now()
				lock, err := client.LockAll(ctx, []string{"b", "a", "c"})
				if err != nil {
					t.Fatal(err)
				}
				if holder := <-seen; holder.ID == "" {
					t.Error("it is not held")
				}
				if err := lock.Unlock(ctx); err != nil {
					t.Fatal(err)
				}
				if holder := <-seen; holder.ID != "" {
					t.Errorf("it is held: %v", holder)
				}
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// An observer without a ctx or a name, and one of the permits of a store, which has none, is told so once.
func TestObserveOfNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, store := redlatchtest.New(t, redlatch.Config{}), openMute(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var none context.Context
		for what, seq := range map[string]iter.Seq[error]{
			"a lock, without a ctx":   errorsOf(client.Observe(none, "name")),
			"a lock, without a name":  errorsOf(client.Observe(ctx, "")),
			"permits, without a ctx":  errorsOf(client.ObservePermits(none, "name")),
			"permits, without a name": errorsOf(client.ObservePermits(ctx, "")),
			"permits of a store":      errorsOf(store.ObservePermits(ctx, "name")),
		} {
			var told []error
			start := time.Now()
			for err := range seq {
				told = append(told, err)
			}
			if took := time.Since(start); took > 0 || len(told) != 1 || !errors.Is(told[0], redlatch.ErrInvalid) {
				t.Errorf("%s: after %v: %v", what, took, told)
			}
		}
	})
}
