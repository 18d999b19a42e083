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

// Each time that no node answers, an observer of permits is told that once, and then the same permits again.
func TestObserverOfPermitsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		if _, err := client.Peer(redlatch.Config{}).Acquire(t.Context(), "pool", 3); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		told := 0
		for held, err := range client.ObservePermits(ctx, "pool") {
			told++
			if cut := told%2 == 0; cut != errors.Is(err, redlatch.ErrNoQuorum) || !cut && len(held) != 1 {
				t.Fatalf("told %d: %+v, %v", told, held, err)
			} else if told == 5 {
				break
			} else if !cut {
				client.Cut(true)
			} else {
				time.AfterFunc(time.Minute, func() { client.Cut(false) })
			}
		}
		if told != 5 {
			t.Errorf("told %d times in an hour", told)
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

// waitForPermit has a peer of client wait for one of k permits.
func waitForPermit(ctx context.Context, t *testing.T, client *redlatchtest.Client, k int) (*redlatchtest.Client, <-chan error) {
	t.Helper()
	peer, got := client.Peer(redlatch.Config{}), make(chan error, 1)
	go func() {
		_, err := peer.Acquire(ctx, "pool", k)
		got <- err
	}()
	time.Sleep(time.Millisecond)
	return peer, got
}

// holdPermits takes all of two permits. free gives one back.
func holdPermits(t *testing.T, client *redlatchtest.Client) (free func()) {
	t.Helper()
	var held []*redlatch.Lock
	for range 2 {
		lock, err := client.Acquire(t.Context(), "pool", 2)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
	}
	return func() {
		t.Helper()
		if err := held[0].Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		held = held[1:]
	}
}

// A permit is kept for the first in the queue: from all who try, but for one who waits in no queue, and no longer
// than until the first has one.
func TestPermitIsKeptForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		free, permits := holdPermits(t, client), redlatch.WithPermits(2)
		peer, got := waitForPermit(t.Context(), t, client, 2)
		peer.Delay(10 * time.Millisecond)
		free()
		free()
		if _, err := client.TryLock(t.Context(), "pool", permits); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("in turn: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		lock, err := client.Acquire(ctx, "pool", 2, redlatch.WithoutQueue())
		if err != nil {
			t.Fatalf("out of turn: %v", err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if _, err := client.TryLock(t.Context(), "pool", permits); err != nil {
			t.Errorf("after the first has one: %v", err)
		}
	})
}

// Who has got a permit in its turn is in nobody's way any more, also when it hears nothing of what follows.
func TestPermitTakenInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		free := holdPermits(t, client)
		first, got := waitForPermit(t.Context(), t, client, 2)
		_, then := waitForPermit(t.Context(), t, client, 2)
		free()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		first.Cut(true)
		start := time.Now()
		free()
		if err := <-then; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the next waited for %v", took)
		}
	})
}

// Who gives up in its turn passes it on.
func TestTurnForAPermitIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		free := holdPermits(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		first, gone := waitForPermit(ctx, t, client, 2)
		_, then := waitForPermit(t.Context(), t, client, 2)
		first.Delay(10 * time.Millisecond) // it hears of its turn too late
		free()
		cancel()
		start := time.Now()
		if err := <-then; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("the next waited for %v", took)
		}
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
