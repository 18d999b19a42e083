package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// singly has client lose turns for both of names, until it takes them one by one and has the first; other
// has the second then, which is b.
func singly(t *testing.T, s Stage, client, other Client, names []string, options ...redlatch.Option) (b *redlatch.Lock, out <-chan locktest.Outcome, giveUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(locktest.Within(t, 2*locktest.Patience))
	t.Cleanup(cancel)
	b = lockIn(ctx, t, other, names[1])
	out = locktest.LockIn(ctx, client, names[1], append(options, redlatch.WithAlso(names[0]), redlatch.WithLabel("set"))...)
	locktest.Await(t, "the first of the names is taken", func() bool {
		a, err := other.TryLock(ctx, names[0])
		if err == nil {
			// Of two who want the other's name, the one that has waited gets it, which is the call for both.
			locktest.Unlock(t, b)
			b = lockIn(ctx, t, other, names[1])
			locktest.Unlock(t, a)
			return false
		}
		has := 0
		for i := range s.Nodes() {
			if strings.HasSuffix(s.Value(t, i, names[0]), ".set") {
				has++
			}
		}
		return has > s.Nodes()/2 // which an attempt for both cannot have
	})
	return b, out, cancel
}

func lockIn(ctx context.Context, t *testing.T, c Client, name string) *redlatch.Lock {
	t.Helper()
	lock, err := c.Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// holderOfAll returns what all names have on those nodes that have a key, and whether it is one value, on a quorum
// for each. A node that is late may have the key of one name yet. One that was too late for an attempt may have
// none, and is not given it if it has counted on for others.
func holderOfAll(t *testing.T, s Stage, names []string) (holder string, ok bool) {
	t.Helper()
	for _, name := range names {
		has := 0
		for i := range s.Nodes() {
			switch v := s.Value(t, i, name); {
			case v == "":
			case holder != "" && v != holder:
				return "", false
			default:
				holder = v
				has++
			}
		}
		if has <= s.Nodes()/2 {
			return "", false
		}
	}
	return holder, true
}

// Who has lost some turns takes the names one by one, keeps others from those that it has, and then
// holds all by one attempt, with a larger token than all before.
func severalSingly(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	names := namesOf(t, 2)
	b, out, _ := singly(t, s, client, other, names)
	for _, locker := range []Client{client, other} {
		for _, name := range names {
			if _, err := locktest.TryInTime(t, locker, name); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// Those who come later wait behind it, here and there.
	var behind []<-chan locktest.Outcome
	for _, locker := range []Client{client, s.Open(t, redlatch.Config{})} {
		for _, name := range names {
			report, waits := locktest.WhenWaiting(nil)
			behind = append(behind, locktest.LockIn(locktest.Within(t, locktest.Patience), locker, name, report))
			<-waits
		}
	}
	single := s.Value(t, 0, names[0])
	locktest.Unlock(t, b)
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	if o.Lock.Token() <= b.Token() {
		t.Errorf("token %d follows %d", o.Lock.Token(), b.Token())
	}
	for _, name := range names {
		if lock, ok := redlatch.Held(o.Lock.Context(), name); !ok || lock != o.Lock {
			t.Errorf("%s: its context has %v", name, lock)
		}
	}
	locktest.Await(t, "the names have one holder, on a quorum of nodes", func() bool {
		holder, ok := holderOfAll(t, s, names)
		return ok && holder != single
	})
	locktest.Extend(t, o.Lock, 20*time.Second)
	locktest.Unlock(t, o.Lock)
	var all sync.WaitGroup
	for _, waiter := range behind {
		all.Go(func() {
			next := <-waiter
			if next.Err != nil {
				t.Error(next.Err)
				return
			}
			if next.Lock.Token() <= o.Lock.Token() {
				t.Errorf("%s: token %d follows %d", next.Lock.Name(), next.Lock.Token(), o.Lock.Token())
			}
			locktest.Unlock(t, next.Lock)
		})
	}
	all.Wait()
	for _, name := range names {
		awaitGone(t, s, name)
	}
}

// Who gives up, or is closed, while it has one of the names gives it back.
func severalSinglyGivenUp(t *testing.T, s Stage) {
	for _, end := range []error{context.Canceled, redlatch.ErrClosed} {
		client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
		names := namesOf(t, 2)
		var has atomic.Bool
		second, once := make(chan struct{}), sync.Once{}
		b, out, giveUp := singly(t, s, client, other, names, redlatch.WithWaitReport(func(err error) {
			if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok && has.Load() && failure.Name == names[1] {
				once.Do(func() { close(second) })
			}
		}))
		has.Store(true)
		<-second // it knows by now that it has the first
		report, waits := locktest.WhenWaiting(nil)
		behind := locktest.LockIn(locktest.Within(t, locktest.Patience), other, names[0], report)
		<-waits
		if end == redlatch.ErrClosed {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		} else {
			giveUp()
		}
		if o := <-out; !errors.Is(o.Err, end) || !errors.Is(o.Err, redlatch.ErrHeld) && !locktest.Late(o.Err) {
			t.Errorf("%v, want %v", o.Err, end)
		} else if failure := locktest.FailureOf(t, o.Err); failure.Name != names[1] {
			t.Errorf("%q was in the way", failure.Name)
		}
		next := <-behind
		if next.Err != nil {
			t.Fatal(next.Err)
		}
		locktest.Unlock(t, next.Lock)
		locktest.Unlock(t, b)
		for _, name := range names {
			awaitGone(t, s, name)
		}
	}
}

// Who loses one of the names that it has goes on without the others, and holds all in the end.
func severalSinglyLost(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	names := namesOf(t, 3)
	b, out, _ := singly(t, s, client, other, names[:2], redlatch.WithTTL(2*time.Second), redlatch.WithAlso(names[2]))
	for i := range s.Nodes() {
		s.Set(t, i, names[0], "")
	}
	a := lockIn(locktest.Within(t, locktest.Patience), t, other, names[0])
	if a.Token() == 0 || b.Err() != nil {
		t.Errorf("b: %v", b.Err())
	}
	locktest.Unlock(t, b)
	// It may have taken the others before it knew of the loss: it has none where one is another's.
	select {
	case o := <-out:
		t.Fatalf("all held beside another: %v", o.Err)
	case <-time.After(50 * time.Millisecond):
	}
	if a.Err() != nil {
		t.Errorf("a: %v", a.Err())
	}
	locktest.Unlock(t, a)
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	if o.Lock.Token() <= a.Token() || o.Lock.Token() <= b.Token() {
		t.Errorf("token %d follows %d and %d", o.Lock.Token(), a.Token(), b.Token())
	}
	locktest.Unlock(t, o.Lock)
	for _, name := range names {
		awaitGone(t, s, name)
	}
}
