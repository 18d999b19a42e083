package redlatchtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// When permits are free together who waits for them gets in without waiting for a timer.
func TestPermitsThatAreFreeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const k = 4
		client := redlatchtest.New(t, redlatch.Config{})
		var held []*redlatch.Lock
		for range k {
			lock, err := client.Acquire(t.Context(), "pool", k)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, lock)
		}
		got := make(chan error, k)
		for range k {
			peer := client.Peer(redlatch.Config{})
			go func() {
				_, err := peer.Acquire(t.Context(), "pool", k)
				got <- err
			}()
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		for _, lock := range held {
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range k {
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// Who waits gets the permit that expires first as soon as it has. Without looking at that one it would
// come by chance, so it is tried some times.
func TestPermitThatExpires(t *testing.T) {
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			client := redlatchtest.New(t, redlatch.Config{})
			for _, ttl := range []time.Duration{9 * time.Second, 2 * time.Second} {
				if _, err := client.Acquire(t.Context(), "pool", 2, redlatch.WithTTL(ttl), redlatch.WithoutRenewal()); err != nil {
					t.Fatal(err)
				}
			}
			client.Cut(true) // else it would release what has run out
			start := time.Now()
			lock, err := client.Peer(redlatch.Config{}).Acquire(t.Context(), "pool", 2)
			if took := time.Since(start); err != nil || lock.Slot() < 0 || took < 1990*time.Millisecond || took > 2020*time.Millisecond {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
}
