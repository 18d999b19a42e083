package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// A client that could not renew more locks in time acquires none, rather than lose those that it has:
// its server answers so slowly that some thousands are all that it can keep.
func TestOverload(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{TTL: 5 * time.Second, MaxTTL: 5 * time.Second, NodeTimeout: time.Second})
		locks.Delay(300 * time.Millisecond)
		var mu sync.Mutex
		var held []*redlatch.Lock
		var refused atomic.Int32
		for round := range 24 {
			var callers sync.WaitGroup
			for i := range 1000 {
				callers.Go(func() {
					lock, err := locks.TryLock(t.Context(), fmt.Sprint(round, "-", i))
					switch {
					case err == nil:
						mu.Lock()
						held = append(held, lock)
						mu.Unlock()
					case errors.Is(err, redlatch.ErrOverloaded):
						refused.Add(1)
					default:
						t.Errorf("TryLock: %v", err)
					}
				})
			}
			callers.Wait()
		}
		if len(held) == 0 || refused.Load() == 0 {
			t.Errorf("%d held, %d refused", len(held), refused.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := locks.Lock(ctx, "one more")
		if !errors.Is(err, redlatch.ErrOverloaded) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one more: %v", err)
		}
		if still := len(locks.Held()); still != len(held) {
			t.Errorf("%d of %d are held still", still, len(held))
		}
		waiting := make(chan error)
		go func() {
			_, err := locks.Lock(t.Context(), "one more")
			waiting <- err
		}()
		for _, lock := range held[:len(held)/2] {
			go lock.Unlock(t.Context())
		}
		if err := <-waiting; err != nil {
			t.Errorf("one more, when others were released: %v", err)
		}
	})
}
