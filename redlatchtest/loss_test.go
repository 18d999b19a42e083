package redlatchtest

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// A caller of the same client gets a lock as soon as it was lost, though its former holder works on until the end of the
// validity and does not look.
func TestNextAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		lock, err := locks.TryLock(t.Context(), "a", redlatch.WithTTL(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		lost := time.Now().Add(time.Second)
		time.AfterFunc(time.Second, func() { locks.Lose("a") })
		next, err := locks.Lock(t.Context(), "a")
		if took := time.Since(lost); err != nil || took > time.Second {
			t.Fatalf("after %v: %v", took, err)
		}
		if next.Err() != nil || !errors.Is(lock.Err(), redlatch.ErrLost) || next.Token() <= lock.Token() {
			t.Errorf("the next, under %d: %v; the last, under %d: %v", next.Token(), next.Err(), lock.Token(), lock.Err())
		}
	})
}

// A lock is renewed when a third of its TTL is over, and not before.
func TestFirstRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		const ttl = 30 * time.Second
		lock, err := locks.Lock(t.Context(), "a", redlatch.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		until := lock.Until()
		time.Sleep(ttl / 4)
		if !lock.Until().Equal(until) {
			t.Errorf("renewed within %v, by %v", ttl/4, lock.Until().Sub(until))
		}
		time.Sleep(ttl / 4)
		if !lock.Until().After(until) {
			t.Errorf("not renewed within %v", ttl/2)
		}
	})
}
