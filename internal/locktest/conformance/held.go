package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// A ctx carries the locks that it was made under, for as long as they are held, whatever was made
// of it.
func heldInContext(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	outer, inner := t.Name()+"/outer", t.Name()+"/inner"
	if lock, ok := redlatch.Held(t.Context(), outer); ok {
		t.Errorf("nobody's ctx carries %v", lock)
	}
	var after context.Context
	err := client.Do(t.Context(), outer, func(ctx context.Context) error {
		second := locktest.TryLock(t, client, inner)
		lock, err := client.Lock(ctx, inner+"/third")
		if err != nil {
			return err
		}
		after = context.WithoutCancel(context.WithValue(lock.Context(), ctxKey{}, 1))
		if got, ok := redlatch.Held(after, inner+"/third"); !ok || got != lock {
			t.Errorf("the last: %v, %t", got, ok)
		}
		if got, ok := redlatch.Held(after, outer); !ok || got.Token() == 0 || got.Name() != outer {
			t.Errorf("the one before: %v, %t", got, ok)
		}
		if _, ok := redlatch.Held(after, inner); ok {
			t.Error("it carries a lock that it was not made under")
		}
		locktest.Unlock(t, lock)
		locktest.Unlock(t, second)
		if _, ok := redlatch.Held(after, inner+"/third"); ok {
			t.Error("it carries what was released")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, ok := redlatch.Held(after, outer); ok {
		t.Error("it carries what Do has released")
	}
}

// A call that would wait for its own caller is refused at once, and only that.
func heldByThisCall(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal(), redlatch.WithTTL(10*time.Second))
	nothing := func(context.Context) error { t.Error("it ran"); return nil }
	for what, ctx := range map[string]context.Context{"its own": lock.Context(), "made of it": context.WithoutCancel(lock.Context())} {
		for method, err := range map[string]error{
			"Lock":         locktest.ErrorOf(client.Lock(ctx, t.Name())),
			"WithoutQueue": locktest.ErrorOf(client.Lock(ctx, t.Name(), redlatch.WithoutQueue())),
			"Do":           client.Do(ctx, t.Name(), nothing),
			"Campaign":     client.Campaign(ctx, t.Name(), nothing),
		} {
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "the ctx of this call carries it") {
				t.Errorf("%s, %s: %v", what, method, err)
			}
		}
		if _, err := locktest.TryInTime(t, inContext{client, ctx}, t.Name()); !errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s, TryLock: %v", what, err)
		}
	}
	// Another client waits, though it is for nothing here.
	ctx, cancel := context.WithTimeout(lock.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := other.Lock(ctx, t.Name()); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("another client: %v", err)
	}
	// What was lost is in nobody's way.
	past := lock.Context()
	for i := range stolen(s) {
		s.Set(t, i, t.Name(), "theirs")
	}
	locktest.Await(t, "it is found lost", func() bool { return errors.Is(lock.Extend(t.Context(), 10*time.Second), redlatch.ErrLost) })
	for i := range s.Nodes() {
		s.Set(t, i, t.Name(), "")
	}
	again, err := client.Lock(context.WithoutCancel(past), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, again)
}

// inContext is a client whose TryLock has another ctx.
type inContext struct {
	Client
	ctx context.Context
}

func (c inContext) TryLock(_ context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	return c.Client.TryLock(c.ctx, name, options...)
}
