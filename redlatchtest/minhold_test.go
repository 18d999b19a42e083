package redlatchtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// A lock that is unlocked while it is being renewed is released when its WithMinHold is over, and not when the next renewal
// would have been due.
func TestUnlockDuringARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const ttl, hold = 30 * time.Second, 11100 * time.Millisecond // the renewal begins after 9 to 11 s
		locks := New(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second})
		lock, err := locks.TryLock(t.Context(), "job", redlatch.WithMinHold(hold))
		if err != nil {
			t.Fatal(err)
		}
		granted := time.Now()
		locks.Delay(50 * time.Millisecond)
		left := func() time.Duration { return locks.server.node.Keys()["job"].Left }
		for left() <= ttl-time.Since(granted) { // until the node has extended it
			time.Sleep(10 * time.Millisecond)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		for len(locks.Held()) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if held := time.Since(granted); held < hold || held > hold+100*time.Millisecond {
			t.Errorf("released after %v", held)
		}
	})
}

// A lock that is unlocked too early is released when its WithMinHold is over, though it would be renewed much later.
func TestUnlockLongBeforeARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		const hold = 2 * time.Second
		lock, err := locks.TryLock(t.Context(), "job", redlatch.WithTTL(30*time.Second), redlatch.WithMinHold(hold))
		if err != nil {
			t.Fatal(err)
		}
		granted := time.Now()
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, err := locks.Lock(t.Context(), "job")
		if held := time.Since(granted); err != nil || held < hold || held > hold+100*time.Millisecond {
			t.Errorf("released after %v: %v", held, err)
		}
		if err == nil && next.Token() <= lock.Token() {
			t.Errorf("token %d follows %d", next.Token(), lock.Token())
		}
	})
}

// Who waits for a lock that another caller of the client has unlocked too early, and that the nodes keep for longer than
// it was valid, is told for how long still. A negative time would mean for ever.
func TestWaitBehindAKeptLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const ttl, hold, late = 30 * time.Second, 29690 * time.Millisecond, 200 * time.Millisecond
		locks := New(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second})
		locks.Delay(late) // the validity counts from the send, and WithMinHold from the grant
		asked := time.Now()
		lock, err := locks.TryLock(t.Context(), "job", redlatch.WithMinHold(hold), redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithDeadline(t.Context(), asked.Add(hold+late/2))
		defer cancel()
		_, err = locks.Lock(ctx, "job")
		failure, ok := errors.AsType[*redlatch.QuorumError](err)
		if !ok {
			t.Fatal(err)
		}
		if _, left, ok := failure.Holder(); !ok || left < late/2 {
			t.Errorf("it is kept for %v still: %v", left, err)
		}
	})
}

// A lock that runs out while it is being prolonged for its WithMinHold, or is found gone then, is lost.
func TestUnlockOfALockThatIsLostWhileKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, gone := range []bool{false, true} {
			const ttl, hold, late = 30 * time.Second, 29690 * time.Millisecond, 200 * time.Millisecond
			locks := New(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second})
			locks.Delay(late) // the validity counts from the send, and WithMinHold from the grant
			asked := time.Now()
			lock, err := locks.TryLock(t.Context(), "job", redlatch.WithMinHold(hold), redlatch.WithoutRenewal(), redlatch.WithGuard(0))
			if err != nil {
				t.Fatal(err)
			}
			if gone {
				locks.server.node.Set("job", "", time.Minute)
			} else {
				time.Sleep(time.Until(asked.Add(hold - late/2)))
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("gone %t: %v", gone, err)
			}
			if held := locks.Held(); len(held) > 0 {
				t.Errorf("gone %t: %v", gone, held)
			}
		}
	})
}

// What is left of a lock that was lost is not kept.
func TestUnlockOfALostLockIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		locks := New(t, redlatch.Config{TTL: ttl, MaxTTL: ttl})
		lock, err := locks.TryLock(t.Context(), "job", redlatch.WithMinHold(29*time.Second), redlatch.WithoutRenewal(), redlatch.WithGuard(ttl/2))
		if err != nil {
			t.Fatal(err)
		}
		<-lock.Context().Done()
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) || len(locks.Held()) > 0 {
			t.Errorf("%v; the node has %v", err, locks.Held())
		}
	})
}

// Unlock says that no quorum has answered where the node would forget a lock before its WithMinHold is over, and cannot be asked
// to keep it for longer.
func TestUnlockThatCannotKeepTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const ttl, hold, late = 30 * time.Second, 29690 * time.Millisecond, 200 * time.Millisecond
		locks := New(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second})
		locks.Delay(late) // the validity counts from the send, and WithMinHold from the grant
		lock, err := locks.TryLock(t.Context(), "job", redlatch.WithMinHold(hold))
		if err != nil {
			t.Fatal(err)
		}
		locks.Cut(true)
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("Unlock says %v", err)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || !errors.Is(err, redlatch.ErrReleased) {
			t.Errorf("another Unlock says %v", err)
		}
	})
}
