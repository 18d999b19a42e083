package quorum

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// A node is sent no second step while one is under way: its vote is not asked for in an
// extension before the acquire step was answered.
func TestOneStepAtATimeOnANode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		nodes[2].set(func(s *server) { s.there = 20 * time.Millisecond })
		lease := acquired(t, newEngine(t, nodes), "mine")
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Fatal(end)
		}
		rest()
		if got := nodes[2].order(); !slices.Equal(got, []string{"acquire"}) {
			t.Errorf("node 2 did %v", got)
		}
		lease.Release()
	})
}

// A node is given its key back once, though a second round is confirmed before it has
// answered.
func TestOneRepairAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[2].put("", 0)
		time.AfterFunc(1500*time.Microsecond, func() {
			nodes[2].set(func(s *server) { s.there = 20 * time.Millisecond }) // of the repair
		})
		for range 2 {
			if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
				t.Fatal(end)
			}
			time.Sleep(time.Millisecond)
		}
		rest()
		if n := nodes[2].executed("repair"); n != 1 || nodes[2].holder() != "mine" {
			t.Errorf("%d repairs: %v", n, nodes[2].order())
		}
		lease.Release()
	})
}

// A node that lost its key, and cannot be given it back, is released all the same: somebody
// may wait there. So is one that has it again by its own means.
func TestReleaseAsksWhoLostTheKey(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			lease := acquired(t, newEngine(t, nodes), "mine")
			rest()
			before := nodes[2].expires
			nodes[2].set(func(s *server) { s.id = ""; s.counter += 1000 })
			lease.Extend(t.Context(), 10*time.Second)
			rest()
			if again {
				nodes[2].set(func(s *server) { s.id, s.expires = "mine", before; s.counter -= 1000 })
				lease.Extend(t.Context(), 10*time.Second)
				rest()
			}
			lease.Release()
			rest()
			if got := nodes[2].executed("release"); got != 1 {
				t.Errorf("has it again: %t: node 2 did %v", again, nodes[2].order())
			}
		})
	}
}

// A lock that is transferred is not released where another has the key.
func TestReleaseToQueueAsksNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := keptBy(t, 5)
		nodes[0].put(theirs, 0)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		lease.Release()
		rest()
		if got := total(nodes, "release"); got != 1 || nodes[4].executed("release") != 1 {
			t.Errorf("%d releases", got)
		}
	})
}

// A holder who was queued, and for whose lock nobody waits any more, releases all nodes
// at once.
func TestNobodyWaitsAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 5)
		lease, answers := newEngine(t, nodes).Acquire(t.Context(), waiters("mine", "", 5))
		if lease == nil {
			t.Fatal(answers)
		}
		rest()
		start := time.Now()
		lease.Release()
		if took := time.Since(start); took != 2*time.Millisecond {
			t.Errorf("released after %v", took)
		}
	})
}

// Where a waiter's node has called another meanwhile, the votes of the rest count; who has no
// ticket leaves the lock to the one who was woken up.
func TestAnotherWasWokenUp(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			nodes[2].set(func(s *server) {
				s.refusal = &vote.Answer{Verdict: vote.Held}
				s.there = time.Microsecond
			})
			request := requestOf("mine")
			if waits {
				request = waiters("mine", "", 3)
			}
			lease, answers := newEngine(t, nodes).Acquire(t.Context(), request)
			if (lease != nil) != waits {
				t.Errorf("waits %t: held is %t: %v", waits, lease != nil, answers)
			}
			if lease != nil {
				lease.Release()
			}
			rest()
		})
	}
}

// A waiter does not have a key removed where another holder's is.
func TestTakeOverLeavesAnothersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		nodes[0].put(theirs, 0)
		lease, answers := newEngine(t, nodes).Acquire(t.Context(), waiters("mine", "before", 3))
		if lease == nil {
			t.Fatal(answers)
		}
		rest()
		if got := total(nodes, "release"); got != 0 {
			t.Errorf("%d releases", got)
		}
		lease.Release()
	})
}

// told is a node of which is known with what requests it was released.
type told struct {
	*server
	answer *vote.Answer // to a release, in place of the node's

	mu       sync.Mutex // guards requests
	requests []vote.Release
}

func (n *told) Release(ctx context.Context, c vote.Release) vote.Answer {
	n.mu.Lock()
	n.requests = append(n.requests, c)
	n.mu.Unlock()
	a := n.server.Release(ctx, c)
	if n.answer != nil {
		return *n.answer
	}
	return a
}

func tellers(nodes []*server) (all []*told, v []Voter) {
	for _, s := range nodes {
		n := &told{server: s}
		all, v = append(all, n), append(v, n)
	}
	return all, v
}

// A release has the token stored where a smaller one may be, and nowhere else: it is then one
// of those that may go together.
func TestReleaseStoresWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		ahead(nodes[0], 9)
		ahead(nodes[1], 9)
		all, v := tellers(nodes)
		e := New(v, newBubbleClock(), stepTime)
		t.Cleanup(e.Close)
		lease, answers := e.Acquire(t.Context(), requestOf("mine"))
		if lease == nil {
			t.Fatal(answers)
		}
		rest()
		lease.Release()
		rest()
		for i, want := range []uint64{0, 0, lease.Token()} {
			if c := all[i].requests; len(c) != 1 || c[0].Token != want {
				t.Errorf("node %d: %+v, want token %d", i, c, want)
			}
		}
	})
}

// leaseOf returns a lease that transfers its keys, and what the nodes are asked through.
func leaseOf(t *testing.T, nodes []*server) ([]*told, *Lease) {
	t.Helper()
	all, v := tellers(nodes)
	e := New(v, newBubbleClock(), stepTime)
	NewTransfers(e, time.Minute)
	t.Cleanup(e.Close)
	lease, answers := e.Acquire(t.Context(), requestOf("mine"))
	if lease == nil {
		t.Fatal(answers)
	}
	rest()
	return all, lease
}

// The arbiter may have called somebody before its answer was lost, or it ran out of memory:
// what that one has taken over since is not lost.
func TestReleaseToQueueWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, verdict := range []vote.Verdict{vote.Unknown, vote.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			nodes := keptBy(t, 3)
			all, lease := leaseOf(t, nodes)
			all[2].answer = &vote.Answer{Verdict: verdict, Err: errSimulated}
			nodes[0].put("next", 0)
			nodes[1].put("next", 0)
			answers, _ := lease.Release()
			if answers[0].Verdict != vote.Granted || answers[1].Verdict != vote.Granted {
				t.Errorf("%v: %v", verdict, answers)
			}
			rest()
		})
	}
}

// A release of which the arbiter gave no answer is over when a quorum says that the keys were taken over: another node that
// does not answer either is not waited for.
func TestReleaseToQueueWithoutAnAnswerDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := keptBy(t, 5)
		all, lease := leaseOf(t, nodes)
		all[4].answer = &vote.Answer{Verdict: vote.Unknown, Err: errSimulated}
		for _, s := range nodes[:3] {
			s.put("next", 0)
		}
		nodes[3].set(func(s *server) { s.lost = true })
		start := time.Now()
		answers, _ := lease.Release()
		if took := time.Since(start); took >= stepTime || Count(answers, vote.Granted) < 3 {
			t.Errorf("after %v: %v", took, answers)
		}
		nodes[3].set(func(s *server) { s.lost = false })
		rest()
	})
}
