package redlatchtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
)

// A call that is over while its lock passes from one caller of the client to the next says that the lock is held.
func TestEndWhileTheLockIsPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{NodeTimeout: time.Second})
		holder, err := locks.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *redlatch.Lock)
		go func() {
			lock, err := locks.Lock(t.Context(), "x", redlatch.WithTTL(20*time.Second)) // not by the same attempt
			if err != nil {
				t.Error(err)
			}
			next <- lock
		}()
		synctest.Wait()
		const late = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), 10*late)
		defer cancel()
		behind := make(chan error)
		go func() {
			_, err := locks.Lock(ctx, "x")
			behind <- err
		}()
		time.Sleep(10*late - late/2)
		locks.Delay(late)
		if err := holder.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-behind; !errors.Is(err, redlatch.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if lock := <-next; lock != nil {
			_ = lock.Unlock(t.Context())
		}
	})
}

// A try that the end of ctx cuts short says less of what stood in the way than the one before it.
func TestEndInTheMiddleOfATry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{NodeTimeout: time.Second})
		if _, err := locks.Peer(redlatch.Config{}).TryLock(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		const late = 100 * time.Millisecond // much longer than the rest between two tries
		locks.Delay(late)
		ctx, cancel := context.WithTimeout(t.Context(), late+late/2)
		defer cancel()
		if _, err := locks.Lock(ctx, "x", redlatch.WithoutQueue()); !errors.Is(err, redlatch.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
