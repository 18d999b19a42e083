package locking

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A lock is released once; whoever comes later is told.
func TestUnlockTwice(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
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
		records := 0 // where the first release was still under way the next found its record
		for _, s := range nodes {
			if locktest.Value(t, s, t.Name()) != "" {
				records++
			}
		}
		if next.Err() != nil || records < 2 {
			t.Errorf("the next lock suffered: %v, %d records", next.Err(), records)
		}
		locktest.Unlock(t, next)
	})
}

// Of many goroutines that release one lock, one does.
func TestUnlockAtOnce(t *testing.T) {
	t.Parallel()
	client := locktest.Open(t, locktest.Config(redistest.URLs(locktest.Shared(t, 3))...))
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
			case err == nil:
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
func TestUnlockWithADoneCtx(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := client.TryLock(ctx, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if lock.Err() != nil || lock.Context().Err() != nil {
		t.Errorf("the end of the ctx that it was acquired under ended it: %v", lock.Err())
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
	for _, s := range nodes {
		locktest.AwaitValue(t, s, t.Name(), "")
	}
}

// The records are gone, or another's: the release says that the lock was lost,
// and touches nothing.
func TestUnlockWhatIsGone(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
		locktest.Do(t, nodes[0], "DEL", t.Name())
		locktest.Do(t, nodes[1], "SET", t.Name(), "theirs", "PX", "60000")
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
		locktest.AwaitValue(t, nodes[2], t.Name(), "")
		if v := locktest.Value(t, nodes[1], t.Name()); v != "theirs" {
			t.Errorf("another's record is now %q", v)
		}
		locktest.Do(t, nodes[1], "DEL", t.Name())
		// A minority that lost it is no loss.
		lock = locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
		locktest.Await(t, "the node has it", func() bool { return locktest.Value(t, nodes[1], t.Name()) != "" })
		locktest.Do(t, nodes[1], "DEL", t.Name())
		locktest.Unlock(t, lock)
	})
}
