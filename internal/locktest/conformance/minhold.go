package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

func minHoldOfAnotherClient(t *testing.T, s Stage) {
	minHold(t, s, func(_, other Client) Client { return other })
}

func minHoldOfTheSame(t *testing.T, s Stage) {
	minHold(t, s, func(same, _ Client) Client { return same })
}

// The lock is kept for WithMinHold though fn has returned, or panicked, while its caller
// goes on; then whoever waits gets it, long before its TTL is over.
func minHold(t *testing.T, s Stage, waiterIn func(same, other Client) Client) {
	const hold = 1500 * time.Millisecond
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	waiter := waiterIn(client, other)
	for _, panics := range []bool{false, true} {
		do := func() error {
			defer func() { recover() }()
			return client.TryDo(t.Context(), t.Name(), func(context.Context) error {
				if panics {
					panic("on purpose")
				}
				return nil
			}, redlatch.WithMinHold(hold))
		}
		before := time.Now()
		err := do()
		// Where nodes of a busy machine were late, again, until what that try left is gone.
		for start, busy := before, locktest.Late(err); busy && err != nil && time.Since(start) < locktest.Patience; {
			storm.Rest(t.Context(), time.Millisecond)
			before = time.Now()
			err = do()
		}
		if err != nil {
			t.Errorf("%v", err)
		}
		lock, err := other.TryLock(t.Context(), t.Name())
		if time.Since(before) < hold && !errors.Is(err, redlatch.ErrHeld) && !locktest.Late(err) {
			t.Errorf("tried after the job: %v", err)
		}
		if err != nil {
			lock, err = waiter.Lock(locktest.Within(t, locktest.Patience), t.Name())
			if err != nil {
				t.Fatal(err)
			}
			if after := time.Since(before); after < hold {
				t.Errorf("had by another %v after the grant", after)
			}
		}
		locktest.Unlock(t, lock)
	}
}

// Callers of one client wait for each other's WithMinHold, in turn.
func minHoldOfEachCaller(t *testing.T, s Stage) {
	const hold, callers = 300 * time.Millisecond, 3
	client := s.Open(t, redlatch.Config{})
	before := time.Now()
	for range callers {
		if err := client.Do(locktest.Within(t, locktest.Patience), t.Name(), func(context.Context) error { return nil }, redlatch.WithMinHold(hold)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(before); took < (callers-1)*hold {
		t.Errorf("%d callers were done after %v", callers, took)
	}
}

// A lock that was unlocked is over for its holder, once, also while it is kept.
func minHoldAndTheLock(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithMinHold(15*time.Second))
	locktest.Unlock(t, lock)
	if !errors.Is(lock.Err(), redlatch.ErrReleased) || !errors.Is(context.Cause(lock.Context()), redlatch.ErrReleased) {
		t.Errorf("%v, context ended by %v", lock.Err(), context.Cause(lock.Context()))
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("unlocked again: %v", err)
	}
	if err := lock.Extend(t.Context(), time.Second); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("extended: %v", err)
	}
}

// Whatever becomes of the client, the servers keep the lock for WithMinHold: when it was
// unlocked or not, and closed or not.
func minHoldOutlivesTheClient(t *testing.T, s Stage) {
	const hold = 20 * time.Second
	for what, end := range map[string]func(Client, *redlatch.Lock) error{
		"granted":             func(Client, *redlatch.Lock) error { return nil },
		"unlocked":            func(_ Client, l *redlatch.Lock) error { return l.Unlock(t.Context()) },
		"closed":              func(c Client, _ *redlatch.Lock) error { return c.Close() },
		"unlocked and closed": func(c Client, l *redlatch.Lock) error { return errors.Join(l.Unlock(t.Context()), c.Close()) },
	} {
		name := t.Name() + "/" + what
		removed(t, s, name)
		client := s.Open(t, redlatch.Config{})
		before := time.Now()
		lock := locktest.TryLock(t, client, name, redlatch.WithTTL(2*time.Second), redlatch.WithMinHold(hold))
		if err := end(client, lock); err != nil {
			t.Fatal(what, err)
		}
		kept := 0
		for i := range s.Nodes() {
			left := s.Left(t, i, name)
			if left >= hold-time.Since(before) {
				kept++
			}
			if left > hold+5*time.Second {
				t.Errorf("%s: kept for %v", what, left)
			}
		}
		if kept < stolen(s) {
			t.Errorf("%s: kept by %d nodes", what, kept)
		}
	}
}

// A lock that was lost is not kept.
func minHoldOfALostLock(t *testing.T, s Stage) {
	removed(t, s, t.Name())
	client := s.Open(t, redlatch.Config{})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(time.Second), redlatch.WithMinHold(15*time.Second))
	for i := range stolen(s) {
		s.Set(t, i, t.Name(), "theirs")
	}
	<-lock.Context().Done()
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("%v", err)
	}
	for i := stolen(s); i < s.Nodes(); i++ {
		locktest.Await(t, "what is left is gone", func() bool { return s.Value(t, i, t.Name()) == "" })
	}
}

// What cannot be kept is refused before anything is sent, by the name of the option.
func minHoldRefused(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	for _, options := range [][]redlatch.Option{
		{redlatch.WithMinHold(-1)},
		{redlatch.WithMinHold(30 * time.Second)}, // MaxTTL, which loses the drift
		{redlatch.WithMinHold(time.Hour)},
		{redlatch.WithMinHold(10 * time.Second), redlatch.WithMaxHold(5 * time.Second)},
	} {
		_, err := client.TryLock(t.Context(), t.Name(), options...)
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "WithMinHold") {
			t.Errorf("%v", err)
		}
	}
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
}
