package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// A lock is released once; whoever comes later is told.
func unlockTwice(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name())
	ctx := lock.Context()
	if lock.Err() != nil || ctx.Err() != nil || context.Cause(ctx) != nil {
		t.Errorf("held: %v, %v, %v", lock.Err(), ctx.Err(), context.Cause(ctx))
	}
	locktest.Unlock(t, lock)
	select {
	case <-ctx.Done():
	default:
		t.Error("the context goes on")
	}
	if !errors.Is(lock.Err(), redlatch.ErrReleased) || errors.Is(lock.Err(), redlatch.ErrLost) || !errors.Is(context.Cause(ctx), redlatch.ErrReleased) {
		t.Errorf("%v, %v", lock.Err(), context.Cause(ctx))
	}
	next := locktest.TryLock(t, client, t.Name())
	for range 2 {
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
			t.Errorf("again: %v", err)
		}
	}
	keys := 0 // where the first release was still under way the next found its key
	for i := range s.Nodes() {
		if s.Value(t, i, t.Name()) != "" {
			keys++
		}
	}
	if next.Err() != nil || keys < stolen(s) {
		t.Errorf("the next lock suffered: %v, %d keys", next.Err(), keys)
	}
	locktest.Unlock(t, next)
}

// Of many goroutines that release one lock, one does.
func unlockAtOnce(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	for range 20 {
		lock := locktest.TryLock(t, client, t.Name())
		var group sync.WaitGroup
		results := make(chan error, 8)
		for range cap(results) {
			group.Go(func() { results <- lock.Unlock(t.Context()) })
		}
		group.Wait()
		close(results)
		done := 0
		for err := range results {
			switch {
			case err == nil, locktest.Late(err): // a busy machine's nodes may not say so in time
				done++
			case !errors.Is(err, redlatch.ErrReleased):
				t.Errorf("%v", err)
			}
		}
		if done != 1 {
			t.Errorf("released %d times", done)
		}
	}
}

// The caller's ctx is done, and the lock is released all the same.
func unlockWithDoneContext(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var lock *redlatch.Lock
	locktest.Await(t, "it is locked", func() bool { // a busy machine's nodes may be late
		var err error
		lock, err = client.TryLock(ctx, t.Name())
		if err != nil && !locktest.Late(err) && !errors.Is(err, redlatch.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	cancel()
	if lock.Err() != nil || lock.Context().Err() != nil {
		t.Errorf("the end of the ctx that it was acquired under ended it: %v", lock.Err())
	}
	if err := lock.Unlock(ctx); err != nil && !locktest.Late(err) {
		t.Error(err)
	}
	awaitGone(t, s, t.Name())
}

// The keys are another's: the release says that the lock was lost, and touches nothing. A minority
// that lost its key is no loss.
func unlockWhatIsGone(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	awaitThere(t, s, t.Name())
	for i := range stolen(s) {
		s.Set(t, i, t.Name(), []string{"theirs", ""}[i%2])
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	for i := range s.Nodes() {
		want := ""
		if i < stolen(s) {
			want = []string{"theirs", ""}[i%2]
		}
		locktest.Await(t, "what is left is gone", func() bool { return s.Value(t, i, t.Name()) == want })
		s.Set(t, i, t.Name(), "")
	}
	lock = locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	awaitThere(t, s, t.Name())
	for i := range s.Nodes() - stolen(s) {
		s.Set(t, i, t.Name(), "")
	}
	locktest.Unlock(t, lock)
}
