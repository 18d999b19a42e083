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

// overload has the client acquire locks until it refuses many. It returns those that it has.
func overload(t *testing.T, client *Client) (held []*redlatch.Lock) {
	t.Helper()
	var mu sync.Mutex // guards held
	var refused atomic.Int32
	for round := range 24 {
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				lock, err := client.TryLock(t.Context(), fmt.Sprint(round, "-", i))
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
	return held
}

// shortTTL is a Config whose locks are renewed often, by a client that waits long for an answer.
var shortTTL = redlatch.Config{TTL: 5 * time.Second, MaxTTL: 5 * time.Second, NodeTimeout: time.Second}

// A client that could not renew more locks in time acquires none, rather than lose those that it has:
// its server answers so slowly that some thousands are all that it can keep.
func TestOverload(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, shortTTL)
		locks.Delay(300 * time.Millisecond)
		held := overload(t, locks)
		before := locks.Stats().Tries
		if _, err := locks.TryLock(t.Context(), "at once"); !errors.Is(err, redlatch.ErrOverloaded) {
			t.Errorf("at once: %v", err)
		}
		if tries := locks.Stats().Tries - before; tries != 1 { // though nothing was sent
			t.Errorf("%d tries are counted for it", tries)
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

// A client that becomes overloaded while it waits is not in the way of those who wait behind it.
func TestOverloadedWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		busy := New(t, shortTTL)
		other := busy.Peer(shortTTL)
		holder, err := other.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := busy.Lock(ctx, "x")
			first <- err
		}()
		time.Sleep(time.Second) // it is queued
		busy.Delay(100 * time.Millisecond)
		overload(t, busy)
		second := make(chan error, 1)
		go func() {
			_, err := other.Peer(shortTTL).Lock(t.Context(), "x")
			second <- err
		}()
		time.Sleep(5 * time.Second) // it is queued, too
		start := time.Now()
		if err := holder.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took >= 500*time.Millisecond {
			t.Errorf("the second had to wait until the overloaded client's turn was over: %v", took)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the overloaded client: %v", err)
		}
	})
}
