package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// Without renewal a lock ends with its TTL: first its context, then its keys.
func withoutRenewal(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(300*time.Millisecond), redlatch.WithoutRenewal())
	until := lock.Until()
	select {
	case <-lock.Context().Done():
	case <-time.After(locktest.Patience):
		t.Fatal("it does not end")
	}
	if !lock.Until().Equal(until) || time.Until(until) > 30*time.Millisecond {
		t.Errorf("ended %v before the end of its validity", time.Until(until))
	}
	if !errors.Is(context.Cause(lock.Context()), redlatch.ErrLost) || !errors.Is(lock.Err(), redlatch.ErrLost) {
		t.Errorf("%v, %v", context.Cause(lock.Context()), lock.Err())
	}
	awaitGone(t, s, t.Name())
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
}

// Who waits for a lock that nobody releases has it when its TTL is over, and not before its
// validity is.
func holderIsGone(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
	until := lock.Until()
	if _, err := lock.Detach(); err != nil { // so that the client does not delete it
		t.Fatal(err)
	}
	next, err := other.Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if now := time.Now(); now.Before(until) {
		t.Errorf("had by another %v before the end of the validity", until.Sub(now))
	}
	if next.Token() <= lock.Token() {
		t.Errorf("token %d follows %d", next.Token(), lock.Token())
	}
	locktest.Unlock(t, next)
}

// Renewal keeps a lock for longer than its TTL, under one token, and stops with the release.
func renewal(t *testing.T, s Stage) {
	const ttl, tries = 6 * time.Second, 20
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	var lock *redlatch.Lock
	var token uint64
	for try := 1; ; try++ { // a busy machine may not renew it in time, but not each time
		lock = locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(ttl))
		first := lock.Until()
		token = lock.Token()
		locktest.Await(t, "held for another TTL", func() bool { return lock.Err() != nil || lock.Until().Sub(first) > ttl })
		err := lock.Err()
		if err == nil {
			break
		}
		awaitGone(t, s, t.Name())
		if try == tries {
			t.Fatal(err)
		}
	}
	if lock.Token() != token {
		t.Errorf("the token changed from %d to %d", token, lock.Token())
	}
	if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("tried by another: %v", err)
	}
	locktest.Unlock(t, lock)
	awaitGone(t, s, t.Name())
}

// Renewal stops after MaxHold: the lock runs out within a TTL of it and says so, and it is not
// extended by hand either.
func maxHold(t *testing.T, s Stage) {
	const ttl, maxHold = 2 * time.Second, 3 * time.Second
	for _, byOption := range []bool{true, false} {
		var c redlatch.Config
		options := []redlatch.Option{redlatch.WithTTL(ttl)}
		if byOption {
			options = append(options, redlatch.WithMaxHold(maxHold))
		} else {
			c.MaxHold = maxHold
		}
		client := s.Open(t, c)
		// A busy machine may be late with the last renewal before MaxHold, or with sending it, but not each time.
		for try := 0; ; try++ {
			start := time.Now()
			lock := locktest.TryLock(t, client, t.Name(), options...)
			acquired := time.Now()
			<-lock.Context().Done()
			within := !lock.Until().After(acquired.Add(maxHold + ttl))
			awaitGone(t, s, t.Name())
			err, held := lock.Unlock(t.Context()), lock.Until().Sub(start)
			if !errors.Is(err, redlatch.ErrLost) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrLost) {
				t.Errorf("held for MaxHold: %v, %v", err, context.Cause(lock.Context()))
			}
			if errors.Is(err, redlatch.ErrMaxHold) && held >= maxHold-ttl/3 && within {
				break
			}
			if try == 4 {
				t.Fatalf("held for %v with a MaxHold of %v: %v", held, maxHold, err)
			}
		}
	}
	lock := locktest.TryLock(t, s.Open(t, redlatch.Config{}), t.Name(), redlatch.WithMaxHold(time.Millisecond))
	locktest.Await(t, "extending is refused after MaxHold", func() bool { return lock.Extend(t.Context(), 20*time.Second) != nil })
	if err := lock.Extend(t.Context(), 20*time.Second); !errors.Is(err, redlatch.ErrInvalid) || !errors.Is(err, redlatch.ErrMaxHold) || lock.Err() != nil {
		t.Errorf("extend: %v; the lock is %v", err, lock.Err())
	}
	locktest.Unlock(t, lock)
}

// The guard is the time between the loss and the end of the validity, and the keys outlive both.
func guard(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	const ttl, guard = 3 * time.Second, 2900 * time.Millisecond
	// This machine may stand still for longer than a guard, but not each time.
	for try := 0; ; try++ {
		lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(ttl), redlatch.WithGuard(guard), redlatch.WithoutRenewal())
		<-lock.Context().Done()
		left := time.Until(lock.Until())
		if left > guard {
			t.Errorf("lost %v before the end of the validity, the guard is %v", left, guard)
		}
		for i := range stolen(s) {
			if s.Left(t, i, t.Name()) <= 0 && time.Until(lock.Until()) > 0 {
				t.Errorf("node %d has nothing any more within the guard", i)
			}
		}
		if err := lock.Extend(t.Context(), 20*time.Second); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("extend within the guard: %v", err)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
		released := time.Now()
		awaitGone(t, s, t.Name())
		if left > guard/2 && time.Since(released) < guard/4 {
			return
		}
		if try == 4 {
			t.Fatalf("lost %v before the end of the validity, gone %v after its release; the guard is %v", left, time.Since(released), guard)
		}
	}
}

// A lock that lapsed is not extended, though nobody else has it.
func extendAfterLapse(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(200*time.Millisecond), redlatch.WithoutRenewal())
	<-lock.Context().Done()
	awaitGone(t, s, t.Name())
	if err := lock.Extend(t.Context(), 10*time.Second); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	for i := range s.Nodes() {
		if v := s.Value(t, i, t.Name()); v != "" {
			t.Errorf("it was taken again: %q on node %d", v, i)
		}
	}
}

// What Extend refuses, and what state it leaves.
func extendErrors(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	until := lock.Until()
	for _, ttl := range []time.Duration{0, -time.Second, 999 * time.Microsecond, 2 * time.Millisecond, time.Hour} {
		if err := lock.Extend(t.Context(), ttl); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("extend by %v: %v", ttl, err)
		}
	}
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := lock.Extend(ctx, 30*time.Second); err != nil && !errors.Is(err, cause) {
		t.Errorf("extend with a ctx that is done: %v", err)
	}
	if lock.Err() != nil {
		t.Errorf("the lock is %v", lock.Err())
	}
	// A shorter one takes nothing away, here or on the nodes.
	locktest.Await(t, "extended", func() bool { return lock.Extend(t.Context(), time.Second) == nil })
	if lock.Until().Before(until) {
		t.Errorf("valid until %v, was %v", lock.Until(), until)
	}
	for i := range s.Nodes() {
		var left time.Duration
		locktest.Await(t, "the node has it", func() bool {
			if left = s.Left(t, i, t.Name()); left <= 0 {
				lock.Extend(t.Context(), time.Second) // a busy machine's node was late
			}
			return left > 0
		})
		if left < time.Until(until) {
			t.Errorf("node %d keeps it for %v, it is valid for %v", i, left, time.Until(until))
		}
	}
	locktest.Unlock(t, lock)
	if err := lock.Extend(t.Context(), 10*time.Second); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("extend after the release: %v", err)
	}
}

// More nodes than a quorum can do without say that they have nothing: the lock is lost at once,
// not at the end of its validity, and what is left of it goes.
func lostAtOnce(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	// The end of its validity would be no reason for long.
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(20*time.Second))
	if err := lock.Extend(t.Context(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	for i := range stolen(s) {
		s.Set(t, i, t.Name(), "theirs")
	}
	// A node that is still busy with the round before is not asked.
	locktest.Await(t, "it is found lost", func() bool {
		err := lock.Extend(t.Context(), 30*time.Second)
		if err == nil {
			t.Fatal("extended")
		}
		return errors.Is(err, redlatch.ErrLost)
	})
	if lock.Context().Err() == nil || time.Until(lock.Until()) < 10*time.Second {
		t.Errorf("context %v, %v before the end of the validity", lock.Context().Err(), time.Until(lock.Until()))
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	for i := range s.Nodes() {
		want := ""
		if i < stolen(s) {
			want = "theirs"
		}
		locktest.Await(t, "what is left is gone", func() bool { return s.Value(t, i, t.Name()) == want })
	}
	removed(t, s, t.Name())
}
