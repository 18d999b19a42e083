package redlatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// Whoever looks at a lock's context never finds it going on while the lock is known to be lost,
// though the goroutine that found that out has not come to ending the context.
func TestContextOfALockKnownToBeLost(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	for way, look := range map[string]func(context.Context) error{
		"Err":   context.Context.Err,
		"Cause": context.Cause,
		"Done": func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return lost
			default:
				return nil
			}
		},
		"child": func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err()
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			lock, err := redlatchtest.New(t, redlatch.Config{}).TryLock(t.Context(), "name")
			if err != nil {
				t.Fatal(err)
			}
			ctx := lock.Context()
			if err := look(ctx); err != nil {
				t.Fatal(err)
			}
			redlatch.LoseUntold(lock, lost)
			if err := look(ctx); err == nil || way == "Cause" && err != lost {
				t.Error("the first look at the context says that the lock is held")
			}
			if cause := context.Cause(ctx); cause != lost {
				t.Errorf("the cause is %v, want %v", cause, lost)
			}
		})
	}
}
