package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// The node that lost its key says so before the quorum is there, and after
// it: it is repaired in both cases, and only then.
func TestRepairFollowsTheQuorum(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%t", late), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				lease := acquired(t, newEngine(t, nodes), "mine")
				rest()
				nodes[0].put("", 0)
				slow := nodes[1:]
				if late {
					slow = nodes[:1]
				}
				for _, s := range slow {
					s.set(func(s *server) { s.back = 10 * time.Millisecond })
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
					t.Fatalf("%v", end)
				}
				if n := nodes[0].executed("repair"); n != 0 {
					t.Errorf("repaired %d times before the quorum was there", n)
				}
				rest()
				if n, r := nodes[0].executed("repair"), nodes[0].holder(); n != 1 || r != "mine" {
					t.Errorf("repaired %d times, key %q", n, r)
				}
				if c := counters(nodes); c[0] != lease.Token() {
					t.Errorf("the repaired node's counter is %d, the token %d", c[0], lease.Token())
				}
			})
		})
	}
}

// The node says late that it lost the key: not before the validity that the
// quorum confirmed has run out, and then it gets nothing.
func TestNoRepairAfterTheValidity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put("", 0)
		nodes[0].set(func(s *server) { s.back = 30 * time.Millisecond })
		time.Sleep(time.Until(lease.Until().Mono) - 10*time.Millisecond)
		if end, _ := lease.Extend(t.Context(), 20*time.Millisecond); end != Extended {
			t.Fatalf("%v", end)
		}
		rest()
		if n := total(nodes, "repair"); n != 0 {
			t.Errorf("%d repairs of what had run out", n)
		}
	})
}

// A node that was given back its key counts again.
func TestRepairedNodeIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		for _, i := range []int{0, 1, 2} {
			nodes[i].put("", 0)
			if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended || lease.Impossible() {
				t.Fatalf("node %d: %v, impossible %t", i, end, lease.Impossible())
			}
			rest()
		}
		for i, r := range holders(nodes) {
			if r != "mine" {
				t.Errorf("node %d has the key %q", i, r)
			}
		}
	})
}

// Where the answer to a repair was lost, the node may have the key again.
func TestNodeThatMayBeRepairedIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put("", 0)
		for _, s := range nodes[1:] {
			s.set(func(s *server) { s.back = 10 * time.Millisecond })
		}
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Fatalf("%v", end)
		}
		nodes[0].set(func(s *server) { s.deaf = true })
		rest()
		if r := nodes[0].holder(); r != "mine" {
			t.Fatalf("the repaired node has the key %q", r)
		}
		nodes[1].put("", 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Missed || lease.Impossible() {
			t.Errorf("%v, impossible %t, with the keys %q", end, lease.Impossible(), holders(nodes))
		}
		rest()
	})
}

// A node that said that it lost the key, and then extends it by itself, has it: its data may have come back.
func TestNodeThatHasTheKeyAgainIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		for i, s := range nodes[:2] {
			s.put("theirs", 0) // so that it is not given back
			end, _ := lease.Extend(t.Context(), 10*time.Second)
			rest()
			if end != Extended || lease.Impossible() {
				t.Fatalf("node %d: %v, impossible %t", i, end, lease.Impossible())
			}
			s.put("mine", time.Minute)
			if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
				t.Fatalf("node %d: %v", i, end)
			}
			rest()
		}
		lease.Release()
		rest()
		for i, r := range holders(nodes) {
			if r != "" {
				t.Errorf("node %d has the key %q", i, r)
			}
		}
	})
}

// stalling is a node for which repair steps are not sent until they are let.
type stalling struct {
	*server
	begun, let chan struct{}
}

func (s stalling) Repair(ctx context.Context, r vote.Extend) vote.Answer {
	s.begun <- struct{}{}
	<-s.let
	return s.server.Repair(ctx, r)
}

// repairing has a lease of which the first of three nodes is about to be given the key back: once let is closed.
func repairing(t *testing.T) (nodes []*server, e *Engine, lease *Lease, let chan struct{}) {
	t.Helper()
	nodes = servers(t, 3)
	slow := stalling{nodes[0], make(chan struct{}), make(chan struct{})}
	e = New([]Voter{slow, nodes[1], nodes[2]}, newBubbleClock(), stepTime)
	lease = acquired(t, e, "mine")
	rest()
	nodes[0].put("", 0)
	if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
		t.Fatalf("%v", end)
	}
	<-slow.begun
	return nodes, e, lease, slow.let
}

// While a node is given the key back it may have it: it counts with those that have said so until it has answered.
func TestNodeThatIsBeingRepairedIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, lease, let := repairing(t)
		defer e.Close()
		nodes[1].put("theirs", 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Missed || lease.Impossible() {
			t.Errorf("%v, impossible %t, before the node has answered the repair", end, lease.Impossible())
		}
		close(let)
		rest()
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended || lease.Impossible() {
			t.Errorf("%v, impossible %t, with the keys %q", end, lease.Impossible(), holders(nodes))
		}
		lease.Release()
		rest()
	})
}

// A release follows a repair that is under way, though it was not sent yet: else the key would come back.
func TestReleaseFollowsTheRepair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, e, lease, let := repairing(t)
		defer e.Close()
		lease.Release()
		time.Sleep(stepTime / 5)
		close(let)
		rest()
		for i, s := range nodes {
			if r := s.holder(); r != "" {
				t.Errorf("node %d has the key %q; it did %v", i, r, s.order())
			}
		}
	})
}
