package waitqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// leaving is a caller that waits for its turn until its ctx is done.
type leaving struct{ wanting }

func (leaving) Listens() bool         { return false }
func (leaving) Behind(*Holder, error) {}
func (leaving) Ended() error          { return context.Canceled }

// asking is a caller to whom keys are transferred.
type asking struct{ wanting }

func (asking) Request() vote.Acquire { return vote.Acquire{Key: key, ID: "next"} }

// alone checks that a caller that comes now need not wait, and that nothing of key is left when it has gone.
func alone(t *testing.T, q *Queue) {
	t.Helper()
	l, w := q.enter(wanting{})
	if w != nil {
		t.Error("a caller waits behind nobody")
		return
	}
	q.pass(l)
	if len(q.locals) > 0 {
		t.Errorf("left in the process: %v", q.locals)
	}
}

// A caller whose turn comes just as it goes passes the turn on, whichever it sees first.
func TestTurnOfACallerThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 64 {
			q := newQueue(t, "p", newNodes(1), nil)
			q.options.Life = t.Context()
			l, _ := q.enter(wanting{})
			_, behind := q.enter(leaving{})
			q.pass(l)
			if _, err := q.stay(gone, l, behind); err == nil {
				q.pass(l)
			}
			alone(t, q)
		}
	})
}

// A holder that let go before the queue heard of it holds nobody up: its lock may have been lost at once.
func TestHolderThatHasLetGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		holder := &Holder{Caller: wanting{}}
		q.LetGo(holder)
		q.Acquired(holder)
		alone(t, q)

		q.enter(wanting{})
		holder = &Holder{Caller: wanting{}}
		q.LetGo(holder)
		q.acquired(holder, true, false)
		alone(t, q)
	})
}

// A holder that lets go once more, or is released after that, does not disturb the one that has the key since.
func TestHolderBeforeTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		before, last := &Holder{Caller: wanting{}}, &Holder{Caller: wanting{}}
		l, _ := q.enter(wanting{})
		q.acquired(before, true, false)
		_, second := q.enter(wanting{})
		_, third := q.enter(wanting{})
		q.LetGo(before)
		<-second.turn
		q.acquired(last, true, false)
		_, successor := q.successor(before)
		q.LetGo(before)
		if successor != nil || len(third.turn) > 0 {
			t.Fatalf("the next caller's turn came: by the release %t, by letting go %t", successor != nil, len(third.turn) > 0)
		}
		q.LetGo(last)
		<-third.turn
		q.pass(l)
		alone(t, q)
	})
}

// While a caller contends, another comes and goes that has the key without a place. The one that contends is still the
// only one: the key is not passed to the caller behind it, either.
func TestHolderBesideACallerThatContends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		l, _ := q.enter(wanting{})
		_, behind := q.enter(wanting{})
		holder := &Holder{Caller: wanting{}}
		q.Acquired(holder)
		_, successor := q.successor(holder)
		q.LetGo(holder)
		_, last := q.enter(wanting{})
		if behind == nil || last == nil || successor != nil || len(behind.turn) > 0 {
			t.Fatal("two callers contend")
		}
		q.pass(l)
		<-behind.turn
		q.pass(l)
		<-last.turn
		q.pass(l)
		alone(t, q)
	})
}

// granting is a node that grants everything.
type granting struct{ released int }

func (*granting) Acquire(_ context.Context, r vote.Acquire) vote.Answer {
	return vote.Answer{Verdict: vote.Granted, Counter: r.Proposed + uint64(r.More)}
}
func (*granting) Extend(context.Context, vote.Extend) vote.Answer   { return vote.Answer{} }
func (*granting) Confirm(context.Context, vote.Confirm) vote.Answer { return vote.Answer{} }
func (*granting) Repair(context.Context, vote.Extend) vote.Answer   { return vote.Answer{} }

func (n *granting) Release(context.Context, vote.Release) vote.Answer {
	n.released++
	return vote.Answer{Verdict: vote.Granted}
}

// moving are transfers to callers of this process, of which nothing is left to a waiter.
type moving struct {
	removals
	transfer func(decided func(next *quorum.Lease)) ([]vote.Answer, bool)
	// more, if set, gets how many more tokens are asked for.
	more *uint8
}

func (m moving) Transfer(_ *quorum.Lease, r vote.Acquire, decided func(*quorum.Lease)) ([]vote.Answer, bool) {
	if m.more != nil {
		*m.more = r.More
	}
	return m.transfer(decided)
}

// A caller that goes when the keys are being transferred to it, or have been released for it, holds nobody up.
func TestSuccessorThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	for _, with := range []*vote.Keys{nil, {"another key"}} { // the keys of several names are released
		for _, goes := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var n granting
				e := quorum.New([]quorum.Voter{&n}, clock.System, time.Second)
				defer e.Close()
				lease, _ := e.Acquire(t.Context(), vote.Acquire{Key: key, With: with, ID: "mine", TTL: 10 * time.Second, Proposed: 1})
				q := newQueue(t, "p", newNodes(1), nil)
				q.options.Life = t.Context()
				l, _ := q.enter(wanting{})
				_, behind := q.enter(asking{})
				q.options.Succeed = func(Caller, *quorum.Lease) *quorum.Lease {
					if goes {
						q.quit(l, behind)
					}
					return nil
				}
				transfers := 0
				q.UseTransfers(moving{transfer: func(decided func(*quorum.Lease)) ([]vote.Answer, bool) {
					transfers++
					decided(nil)
					return []vote.Answer{{Verdict: vote.Granted}}, true
				}})
				holder := &Holder{Caller: wanting{}}
				q.acquired(holder, true, false)
				if _, ok := q.Release(holder, lease); !ok || transfers+n.released != 1 || (transfers == 1) != (with == nil) {
					t.Errorf("released %t: %d transfers and %d releases", ok, transfers, n.released)
				}
				if !goes {
					<-behind.turn
					q.pass(l)
				}
				alone(t, q)
			})
		}
	}
}

// A caller that goes when the attempt before it has been given to it leaves nothing behind: what it was given is released.
func TestSuccessorThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n granting
		e := quorum.New([]quorum.Voter{&n}, clock.System, time.Second)
		defer e.Close()
		const ttl = 10 * time.Second
		lease, _ := e.Acquire(t.Context(), vote.Acquire{Key: key, ID: "mine", TTL: ttl, Proposed: 1, More: 1})
		q := newQueue(t, "p", newNodes(1), nil)
		q.options.Life = t.Context()
		l, _ := q.enter(wanting{})
		_, behind := q.enter(wanting{})
		q.options.Succeed = func(_ Caller, before *quorum.Lease) *quorum.Lease {
			q.quit(l, behind)
			next, _ := before.Succeed(ttl)
			return next
		}
		holder := &Holder{Caller: wanting{}}
		q.acquired(holder, true, false)
		if votes, ok := q.Release(holder, lease); !ok || len(votes) != 1 || n.released != 1 {
			t.Errorf("released %t, %d times: %v", ok, n.released, votes)
		}
		alone(t, q)
	})
}

// A client that is being closed gives its keys to no caller: they are released. Who waits behind hears that by itself.
func TestNothingIsGivenWhenTheClientCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n granting
		e := quorum.New([]quorum.Voter{&n}, clock.System, time.Second)
		defer e.Close()
		lease, _ := e.Acquire(t.Context(), vote.Acquire{Key: key, ID: "mine", TTL: 10 * time.Second, Proposed: 1, More: 1})
		q := newQueue(t, "p", newNodes(1), nil)
		closed, end := context.WithCancel(t.Context())
		end()
		q.options.Life = closed
		given := 0
		q.options.Succeed = func(Caller, *quorum.Lease) *quorum.Lease { given++; return nil }
		q.UseTransfers(moving{transfer: func(func(*quorum.Lease)) ([]vote.Answer, bool) { given++; return nil, true }})
		l, _ := q.enter(wanting{})
		_, behind := q.enter(asking{})
		holder := &Holder{Caller: wanting{}}
		q.acquired(holder, true, false)
		if _, ok := q.Release(holder, lease); !ok || given > 0 || n.released != 1 {
			t.Errorf("released %t, by %d releases; given %d times", ok, n.released, given)
		}
		q.quit(l, behind)
		alone(t, q)
	})
}

// What is known of other processes is of the last grant: who lets go while others wait has them waited for by who
// comes next, and a grant that says that nobody waits ends that.
func TestOthersAreKnownByTheLastGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		before, last := &Holder{Caller: wanting{}}, &Holder{Caller: wanting{}}
		l, _ := q.enter(wanting{})
		q.acquired(before, true, true)
		_, second := q.enter(wanting{})
		q.LetGo(before)
		<-second.turn
		if !q.hasRemoteWaiters(&local{key: key}) {
			t.Error("who comes next does not know of the others")
		}
		q.acquired(last, true, false)
		if l.remote {
			t.Error("the others are believed in after a grant without them")
		}
		q.LetGo(last)
		alone(t, q)
	})
}

// The place of a process of which nobody waits any more is given up once, also while another caller has the key without one.
func TestPlaceThatNobodyUses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, "p", newNodes(1), nil)
		l, _ := q.enter(wanting{})
		l.ticket = q.join(key, false)
		holder := &Holder{Caller: wanting{}}
		q.Acquired(holder)
		q.pass(l)
		if l.ticket != nil || len(q.tickets) > 0 {
			t.Errorf("the place is kept: %v, %v", l.ticket, q.tickets)
		}
		q.LetGo(holder)
		alone(t, q)
	})
}

// An attempt asks for a token for each caller behind, but for none where it is for several keys, which are not passed on.
func TestMoreTokens(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "p", newNodes(1), nil)
	l, _ := q.enter(wanting{})
	q.enter(wanting{})
	q.enter(wanting{})
	if more := q.moreTokens(l, vote.Acquire{}); more != 0 {
		t.Errorf("%d more, and nobody may succeed", more)
	}
	q.options.Succeed = func(Caller, *quorum.Lease) *quorum.Lease { return nil }
	if one, several := q.moreTokens(l, vote.Acquire{}), q.moreTokens(l, vote.Acquire{With: &vote.Keys{"another key"}}); one != 2 || several != 0 {
		t.Errorf("%d more for one key, %d for several", one, several)
	}
}

// A caller to whom the keys are transferred has a token for each caller behind it, as after an attempt of its own.
func TestMoreTokensOfATransfer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n granting
		e := quorum.New([]quorum.Voter{&n}, clock.System, time.Second)
		defer e.Close()
		lease, _ := e.Acquire(t.Context(), vote.Acquire{Key: key, ID: "mine", TTL: 10 * time.Second, Proposed: 1})
		q := newQueue(t, "p", newNodes(1), nil)
		q.options.Life = t.Context()
		q.options.Succeed = func(Caller, *quorum.Lease) *quorum.Lease { return nil }
		var more uint8
		q.UseTransfers(moving{more: &more, transfer: func(func(*quorum.Lease)) ([]vote.Answer, bool) { return nil, false }})
		q.enter(wanting{})
		q.enter(asking{})
		q.enter(wanting{})
		q.enter(wanting{})
		holder := &Holder{Caller: wanting{}}
		q.acquired(holder, true, false)
		if q.Release(holder, lease); more != 2 {
			t.Errorf("%d more are asked for", more)
		}
		lease.Release()
	})
}
