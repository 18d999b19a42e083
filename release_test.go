package redlatch_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
)

// Where a node that does not answer a release may have woken up a client, which takes over what the others do not have, the
// error says which nodes have deleted the lock, and of the others nothing: what they had was perhaps that client's.
func TestUnlockInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := openNodes(t, redlatch.Config{}, 4, "name")
		lock, err := o.client.TryLock(t.Context(), "name", redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		o.others[0].Set("name", "other", time.Minute)
		o.others[1].Delete("name", hook.LeaseOf(lock).HolderID(), "name")
		o.others[2].link.Delay(time.Hour) // longer than anybody waits for an answer
		err = lock.Unlock(t.Context())
		if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
			t.Error(err)
		}
		granted := 0
		for _, a := range locktest.FailureOf(t, err).Nodes {
			switch {
			case a.Verdict == redlatch.VoteGranted:
				granted++
			case a.Verdict != redlatch.VoteUnknown || a.Err != nil || a.Holder.ID != "":
				t.Errorf("%v", a)
			}
		}
		if granted != 1 {
			t.Errorf("%d nodes have deleted it: %v", granted, err)
		}
	})
}

// A lock was lost where more nodes have had it no more than a quorum can do without, and no node that was not heard can have
// woken up somebody who has taken it over.
func TestErrorOfARelease(t *testing.T) {
	t.Parallel()
	const (
		yes, gone, held = redlatch.VoteGranted, redlatch.VoteNotOurs, redlatch.VoteHeld
		unheard, broken = redlatch.VoteUnknown, redlatch.VoteUnavailable
		unsent, refused = redlatch.VoteNotSent, redlatch.VoteRefused
	)
	for _, c := range []struct {
		verdicts []redlatch.Verdict
		want     error
	}{
		{[]redlatch.Verdict{yes, yes, gone}, nil},
		{[]redlatch.Verdict{yes, gone, held}, redlatch.ErrLost},
		{[]redlatch.Verdict{gone, held, unsent}, redlatch.ErrLost},
		{[]redlatch.Verdict{gone, held, unheard}, redlatch.ErrNoQuorum},
		{[]redlatch.Verdict{gone, held, broken}, redlatch.ErrNoQuorum},
		{[]redlatch.Verdict{yes, gone, refused}, redlatch.ErrNoQuorum},
		{[]redlatch.Verdict{yes, gone, unsent}, redlatch.ErrNoQuorum},
		{[]redlatch.Verdict{yes, refused, refused}, redlatch.ErrRefused},
		{[]redlatch.Verdict{yes, yes, gone, unsent}, redlatch.ErrNoQuorum},
		{[]redlatch.Verdict{yes, gone, gone, unsent}, redlatch.ErrLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			lock, err := openNodes(t, redlatch.Config{}, len(c.verdicts), "name").client.TryLock(t.Context(), "name")
			if err != nil {
				t.Fatal(err)
			}
			if err := redlatch.ReleaseErrorOf(lock, c.verdicts...); !errors.Is(err, c.want) {
				t.Errorf("%v: %v, want %v", c.verdicts, err, c.want)
			}
		})
	}
}

// What is left of a lock that is found lost when it is to be kept is released at once, and that it was lost is said once.
func TestRestOfALockThatIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, late = 30 * time.Second, 200 * time.Millisecond
		o := openNodes(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second}, 3, "name")
		if _, err := o.client.TryLock(t.Context(), "another name"); err != nil { // the nodes are known now
			t.Fatal(err)
		}
		synctest.Wait()
		for _, n := range append(o.others, o.arbiter) {
			n.link.Delay(late) // the validity counts from the send, and WithMinHold from the grant
		}
		lock, err := o.client.TryLock(t.Context(), "name", redlatch.WithMinHold(ttl-ttl/100-late/2))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, n := range o.others {
			n.Set("name", "other", time.Minute)
		}
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) || strings.Count(err.Error(), redlatch.ErrLost.Error()) != 1 {
			t.Errorf("%q", err)
		}
		if left := o.arbiter.Keys()["name"].Holder; left != "" {
			t.Errorf("left: %q", left)
		}
	})
}

// stalling is a clock whose reader stalls, at the read that is due.
type stalling struct {
	virtual
	due   atomic.Int64
	stall func()
}

func (s *stalling) Mono() time.Time {
	now := s.virtual.Mono()
	if s.due.Add(-1) == 0 {
		s.stall()
	}
	return now
}

// Who unlocks a kept lock once more is told that it was released, and nothing of nodes that it did not ask, where the time for
// which it is kept ends meanwhile.
func TestUnlockAtTheEndOfAKeptLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, late = 30 * time.Second, 200 * time.Millisecond
		const hold = ttl - ttl/100 - late/2
		machine := &stalling{virtual: virtual{clock.System, time.Now()}, stall: func() { time.Sleep(hold) }}
		link := memory.New(time.Now).Link()
		client := locktest.OpenIn(t, redlatch.Config{TTL: ttl, MaxTTL: ttl, NodeTimeout: time.Second}, hook.Surroundings{
			Clock: machine, Nodes: []hook.Node{{Name: "a", Dial: link.Dial}},
		})
		if _, err := client.TryLock(t.Context(), "another name"); err != nil { // the node is known now
			t.Fatal(err)
		}
		link.Delay(late) // the validity counts from the send, and WithMinHold from the grant
		lock, err := client.TryLock(t.Context(), "name", redlatch.WithMinHold(hold))
		if err != nil {
			t.Fatal(err)
		}
		link.Cut(true)
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Error(err)
		}
		link.Cut(false)
		machine.due.Store(2) // when it begins to prolong it
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrReleased) || errors.Is(err, redlatch.ErrNoQuorum) {
			t.Error(err)
		}
		if machine.due.Load() > 0 {
			t.Error("it has not stalled")
		}
	})
}
