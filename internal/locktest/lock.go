package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// AwaitAnswer tries until the node was reached and is not being looked at.
func AwaitAnswer(t *testing.T, client *redlatch.Client, name string) (*redlatch.Lock, error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		lock, err := TryInTime(t, client, name)
		if err == nil || time.Now().After(deadline) {
			return lock, err
		}
		looking := errors.Is(err, redlatch.ErrNotAdmitted) && VerdictOf(t, err, 0).Left == 0
		// Until it is promoted it is a replica.
		if !looking && !errors.Is(err, redlatch.ErrNoQuorum) && !errors.Is(err, redlatch.ErrRefused) {
			return nil, err
		}
	}
}

// Patience bounds what must happen; it says nothing about how fast.
const Patience = 40 * time.Second

// Within returns a ctx of the test that ends after d.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TryLock locks what is free. Where nodes of a busy machine did not answer in time it tries
// again, until what the last try left is gone; so it does where nobody has a quorum of the nodes, as where steps of tries
// that others made before come late.
func TryLock(t *testing.T, c redlatch.Locker, name string, options ...redlatch.Option) *redlatch.Lock {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for busy := false; ; {
		lock, err := c.TryLock(t.Context(), name, options...)
		if err == nil {
			return lock
		}
		left := errors.Is(err, redlatch.ErrHeld) && (busy || !heldByQuorum(t, err))
		if busy = busy || Late(err); !left && !Late(err) || time.Now().After(deadline) {
			if errors.Is(err, redlatch.ErrHeld) {
				t.Log(FailureOf(t, err).Nodes) // err names the holder alone
			}
			t.Fatal(err)
		}
		storm.Rest(t.Context(), time.Millisecond)
	}
}

// heldByQuorum reports whether the holder that err names may have a quorum of the nodes.
func heldByQuorum(t *testing.T, err error) bool {
	t.Helper()
	failure := FailureOf(t, err)
	holder, _, _ := failure.Holder()
	may := 0
	for _, a := range failure.Nodes {
		if a.Verdict == redlatch.VoteHeld && a.Holder.ID == holder.ID || a.Verdict == redlatch.VoteUnknown {
			may++
		}
	}
	return may >= failure.Need
}

// TryInTime is TryLock, again where nodes of a busy machine were late, and until what that try
// left is gone. After Patience it returns what the last try did.
func TryInTime(t *testing.T, c redlatch.Locker, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	t.Helper()
	start := time.Now()
	deadline, busy := start.Add(Patience), false
	for {
		lock, err := c.TryLock(t.Context(), name, options...)
		if err == nil || time.Now().After(deadline) {
			return lock, err
		}
		own := false
		if busy && errors.Is(err, redlatch.ErrHeld) {
			holder, _, ok := FailureOf(t, err).Holder()
			own = ok && !holder.Since.Before(start.Truncate(time.Millisecond))
		}
		if busy = busy || Late(err); !own && !Late(err) {
			return nil, err
		}
		storm.Rest(t.Context(), time.Millisecond)
	}
}

// InTime does what returns the error of votes again where nodes of a busy machine were late, until Patience.
func InTime(do func() error) error {
	deadline := time.Now().Add(Patience)
	for {
		if err := do(); !Late(err) || time.Now().After(deadline) {
			return err
		}
	}
}

// UntilKept has keep hold a lock, as often as tries says, until it does not lose it: a busy machine may not renew a
// lock in time, but not each time. keep gets the number of the try, from 1, and returns why the lock was lost.
func UntilKept(t *testing.T, tries int, keep func(try int) (lost error)) {
	t.Helper()
	for try := 1; ; try++ {
		err := keep(try)
		if err == nil || t.Failed() {
			return
		}
		if try == tries {
			t.Fatalf("%d times the lock was lost; at last: %v", tries, err)
		}
	}
}

// Late reports whether a vote failed because nodes or their replicas did not answer in time, were
// still busy with what they had not answered or being looked at, or answered when the TTL was over.
func Late(err error) bool {
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	if !ok || !errors.Is(err, redlatch.ErrNoQuorum) && !errors.Is(err, redlatch.ErrNotAdmitted) {
		return false
	}
	possible := 0
	for _, a := range failure.Nodes {
		switch {
		case a.Verdict == redlatch.VoteGranted, a.Verdict == redlatch.VoteUnknown, a.Verdict == redlatch.VoteNotSent, a.Verdict == redlatch.VoteNotReplicated,
			a.Verdict == redlatch.VoteNotAdmitted && a.Left == 0:
			possible++
		}
	}
	return possible >= failure.Need
}

// IsKeptOut expects that a try for the lock that held is came to nothing, lock and err, as its node may have forgotten that.
func IsKeptOut(t *testing.T, held, lock *redlatch.Lock, err error) {
	t.Helper()
	switch {
	case held == nil:
		t.Errorf("the lock was not held before: %v", err)
	case err == nil && held.Err() == nil:
		t.Errorf("%q has two holders: the first for another %v", lock.Name(), time.Until(held.Until()))
	case err == nil:
		t.Error("it was granted too early")
	case !errors.Is(err, redlatch.ErrNotAdmitted):
		t.Errorf("%v, want ErrNotAdmitted", err)
	}
}

// Unlock expects that a lock is released. A busy machine's nodes may not say so in time, and on
// one a TTL as short as RestartTTL may have run out by itself, but for the guard before its end.
func Unlock(t *testing.T, lock *redlatch.Lock) {
	t.Helper()
	err := lock.Unlock(t.Context())
	ranOut := errors.Is(err, redlatch.ErrLost) && time.Until(lock.Until()) < RestartTTL/10
	if err != nil && !ranOut && !Late(err) {
		t.Errorf("unlock %q: %v", lock.Name(), err)
	}
}

// Extend expects that a lock is extended. Where nodes of a busy machine were late it does so again.
func Extend(t *testing.T, lock *redlatch.Lock, ttl time.Duration) {
	t.Helper()
	Await(t, "extended", func() bool {
		err := lock.Extend(t.Context(), ttl)
		if err != nil && !Late(err) {
			t.Fatalf("extend %q: %v", lock.Name(), err)
		}
		return err == nil
	})
}

// AwaitOn waits until all of the nodes have the lock. One that a busy machine's client has not asked is given it by an
// extension.
func AwaitOn(t *testing.T, lock *redlatch.Lock, nodes ...*redistest.Server) {
	t.Helper()
	for _, s := range nodes {
		looks := 0
		Await(t, "all nodes have "+lock.Name(), func() bool {
			if Value(t, s, lock.Name()) != "" {
				return true
			}
			if looks++; looks%100 == 0 { // its vote may be under way before that
				_ = lock.Extend(t.Context(), TTL)
			}
			return false
		})
	}
}

// Await asks check until it reports true, and returns how long that took.
func Await(t *testing.T, what string, check func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for pause := time.Millisecond; !check(); pause = min(pause*3/2, 10*time.Millisecond) {
		if time.Since(start) > Patience {
			t.Fatalf("after %v still not: %s", Patience, what)
		}
		<-time.After(pause)
	}
	return time.Since(start)
}

// TryUntilAnswered repeats TryLock until the node was reached, and returns its
// verdict; the lock, if any, is released. Nobody else wants it: what holds it is a try or a lock
// of its own whose answer was late, and which is being undone.
func TryUntilAnswered(t *testing.T, client *redlatch.Client, name string) error {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for busy := false; ; {
		lock, err := client.TryLock(t.Context(), name)
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		if err == nil || errors.Is(err, redlatch.ErrLost) { // its TTL is short
			return nil
		}
		if busy = busy || Late(err); busy && errors.Is(err, redlatch.ErrHeld) && time.Now().Before(deadline) {
			storm.Rest(t.Context(), time.Millisecond)
			continue
		}
		// While the node is looked at, nothing is known of how long it will take.
		looking := errors.Is(err, redlatch.ErrNotAdmitted) && VerdictOf(t, err, 0).Left == 0
		unanswered := errors.Is(err, redlatch.ErrNoQuorum) && VerdictOf(t, err, 0).Verdict != redlatch.VoteUnavailable
		if !looking && !unanswered || time.Now().After(deadline) {
			return err
		}
	}
}
