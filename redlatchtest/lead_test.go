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

// The term counts from before the send of what won it, and of each renewal, not from the answer.
func TestTermCountsFromTheSend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const ttl, late = 10 * time.Second, 40 * time.Millisecond
		locks := New(t, redlatch.Config{TTL: ttl, NodeTimeout: 50 * time.Millisecond})
		locks.Delay(late)
		began := time.Now()
		err := locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
			lock, _ := redlatch.Held(ctx, "a")
			if lasts := lock.Until().Sub(began); lasts >= ttl-ttl/100 || time.Since(began) != late {
				t.Errorf("granted after %v, it lasts until %v after the call", time.Since(began), lasts)
			}
			for first := lock.Until(); lock.Until().Equal(first); {
				time.Sleep(time.Millisecond)
			}
			// The answer has just come: the renewal was sent so long ago.
			if left := time.Until(lock.Until()); left > ttl-ttl/100-late {
				t.Errorf("renewed, it lasts for %v", left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if got := locks.Calls(); len(got) != 1 || got[0] != (Call{"Campaign", "a"}) {
			t.Errorf("calls: %v", got)
		}
	})
}

// A lead that was lost is not renewed, though the work goes on; what the Observer is told is that of
// one lock after the other.
func TestNoRenewalAfterTheLoss(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		events := new(locktest.Events)
		locks := New(t, redlatch.Config{Observer: events, TTL: 3 * time.Second})
		terms := 0
		err := locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
			if terms++; terms == 2 {
				return nil
			}
			locks.Lose("a")
			if ctx.Err() == nil {
				t.Error("the ctx of the work goes on")
			}
			time.Sleep(time.Minute) // it does not listen
			if held := locks.Held(); len(held) > 0 {
				t.Errorf("held: %v", held)
			}
			return nil
		})
		if err != nil || terms != 2 {
			t.Errorf("%v after %d terms", err, terms)
		}
		if kinds := events.Kinds(); kinds != "LockAcquired LockLost LockAcquired LockReleased" {
			t.Errorf("observed: %s", kinds)
		}
	})
}

// Work that hangs keeps the lead from others until the client is closed, and Close waits for it no
// longer than the validity lasts, which nobody else leads in.
func TestWorkThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{TTL: 10 * time.Second, MaxHold: time.Second}
		locks := New(t, config)
		peer := locks.Peer(config)
		hang, ended := make(chan struct{}), make(chan error, 1)
		var lock *redlatch.Lock
		go func() {
			ended <- locks.Campaign(t.Context(), "a", func(ctx context.Context) error {
				lock, _ = redlatch.Held(ctx, "a")
				<-hang
				return nil
			})
		}()
		synctest.Wait()
		next := locktest.LockIn(t.Context(), peer, "a")
		time.Sleep(time.Hour)
		if lock.Err() != nil {
			t.Fatalf("after an hour: %v", lock.Err())
		}
		until := lock.Until()
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		if now := time.Now(); !now.Equal(until) && now.Before(until) {
			t.Errorf("Close has returned %v before the end of the validity", until.Sub(now))
		}
		if o := <-next; o.Err != nil || time.Now().Before(until) {
			t.Errorf("the next: %v, %v before the end of the validity", o.Err, time.Until(until))
		}
		close(hang)
		if err := <-ended; !errors.Is(err, redlatch.ErrClosed) {
			t.Errorf("the campaign: %v", err)
		}
	})
}

// In memory no change by another client is told: an observer looks every 1.5 s, and when the lock
// can have expired; of its own client's it knows at once.
func TestObserverLooks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		config := redlatch.Config{TTL: time.Second, NodeTimeout: 50 * time.Millisecond}
		locks := New(t, config)
		peer := locks.Peer(config)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type sight struct {
			label string
			err   error
			at    time.Time
		}
		sights := make(chan sight, 100)
		go func() {
			for holder, err := range locks.Observe(ctx, "a") {
				sights <- sight{holder.Label, err, time.Now()}
			}
			close(sights)
		}()
		expect := func(label string, within time.Duration) {
			t.Helper()
			now := time.Now()
			if s := <-sights; s.err != nil || s.label != label || s.at.Sub(now) > within {
				t.Errorf("%+v after %v, want %q within %v", s, s.at.Sub(now), label, within)
			}
		}
		expect("", 0)
		own, err := locks.TryLock(t.Context(), "a", redlatch.WithLabel("own"))
		if err != nil {
			t.Fatal(err)
		}
		expect("own", 0)
		if err := own.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("", 0)
		if _, err := peer.TryLock(t.Context(), "a", redlatch.WithLabel("peer"), redlatch.WithTTL(10*time.Second), redlatch.WithoutRenewal()); err != nil {
			t.Fatal(err)
		}
		expired := time.Now().Add(10*time.Second + 10*time.Millisecond) // a few round trips more
		expect("peer", 1600*time.Millisecond)
		expect("", time.Until(expired))
		locks.Cut(true)
		if s := <-sights; !errors.Is(s.err, redlatch.ErrNoQuorum) {
			t.Errorf("cut off: %+v", s)
		}
		time.Sleep(time.Minute)
		locks.Cut(false)
		expect("", 1600*time.Millisecond)
		cancel()
		if s, more := <-sights; more {
			t.Errorf("at its end: %+v", s)
		}
	})
}
