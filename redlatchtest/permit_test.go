package redlatchtest_test

import (
	"context"
	"errors"
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

// Who waits for a permit while all are taken makes no further tries.
func TestPermitIsWaitedForWithoutTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		lock, err := client.Acquire(t.Context(), "pool", 1)
		if err != nil {
			t.Fatal(err)
		}
		peer := client.Peer(redlatch.Config{})
		got := make(chan error, 1)
		go func() {
			_, err := peer.Acquire(t.Context(), "pool", 1)
			got <- err
		}()
		time.Sleep(5 * time.Second)
		if tries := peer.Stats().Tries; tries != 1 {
			t.Errorf("it made %d tries while the permit was taken, want 1", tries)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
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

// An observer of permits, which is told of nothing here, looks every 1.5 s, and ends with its ctx, its client and
// an argument that is refused.
func TestPermitsAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		peer := client.Peer(redlatch.Config{})
		lock, err := peer.Acquire(t.Context(), "pool", 3)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start, looks := time.Now(), 0
		for held, err := range client.ObservePermits(ctx, "pool") {
			switch looks++; {
			case err != nil:
				t.Fatal(err)
			case looks == 1:
				if len(held) != 1 || held[0].Slot != lock.Slot() {
					t.Errorf("at first %+v", held)
				}
				if err := lock.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
			default:
				if took := time.Since(start); len(held) != 0 || took > 1600*time.Millisecond {
					t.Errorf("after %v %+v", took, held)
				}
				cancel()
			}
		}
		if looks != 2 {
			t.Errorf("%d were yielded", looks)
		}
		var last error
		for _, last = range client.ObservePermits(t.Context(), "") {
		}
		if !errors.Is(last, redlatch.ErrInvalid) {
			t.Errorf("of no name: %v", last)
		}
		for range client.ObservePermits(t.Context(), "pool") {
			client.Close()
		}
		for _, last = range client.ObservePermits(t.Context(), "pool") {
		}
		if !errors.Is(last, redlatch.ErrClosed) {
			t.Errorf("closed: %v", last)
		}
	})
}

// A permit is valid from before its slot was chosen, not from the answer that says which it is.
func TestPermitCountsFromBeforeTheChoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, late = 10 * time.Second, 40 * time.Millisecond
		client := redlatchtest.New(t, redlatch.Config{TTL: ttl, NodeTimeout: 50 * time.Millisecond})
		client.Delay(late)
		began := time.Now()
		lock, err := client.Acquire(t.Context(), "pool", 2)
		if err != nil {
			t.Fatal(err)
		}
		if valid := lock.Until().Sub(began); valid != ttl-ttl/100-2*time.Millisecond || time.Since(began) != late {
			t.Errorf("granted after %v, it is valid for %v from the call", time.Since(began), valid)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A permit that came by one try is in nobody's way in its process.
func TestTriedForBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		lock, err := client.TryLock(t.Context(), "pool", redlatch.WithPermits(2))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		other, err := client.Acquire(ctx, "pool", 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*redlatch.Lock{lock, other} {
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
