package redlatchtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// All readers of the lock lose it at once, and a writer who waits gets it.
func TestLoseOfReaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		peer := locks.Peer(redlatch.Config{})
		var readers []*redlatch.Lock
		for _, client := range []*Client{locks, locks, peer} {
			lock, err := client.RLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, lock)
		}
		if holder := locks.Held()["a"]; !holder.Shared {
			t.Errorf("readers have it, held by %+v", holder)
		}
		out := locktest.LockIn(t.Context(), peer, "a")
		synctest.Wait()
		began := time.Now()
		locks.Lose("a")
		for i, lock := range readers {
			if err := context.Cause(lock.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("reader %d: %v", i, err)
			}
		}
		if o := <-out; o.Err != nil || time.Since(began) > 0 {
			t.Errorf("the writer after %v: %v", time.Since(began), o.Err)
		}
	})
}
