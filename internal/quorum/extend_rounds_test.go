package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An answer to a round that has failed comes before the next round, in which only one node of three
// answers: it does not make that one's quorum.
func TestAnswersOfAnEarlierRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		down := func(down bool, nodes ...*server) {
			for _, s := range nodes {
				s.set(func(s *server) { s.down = down })
			}
		}
		down(true, nodes[1:]...)
		thaw := nodes[0].freeze()
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Missed {
			t.Errorf("the first round: %v", end)
		}
		thaw()
		rest()
		if n := total(nodes, "extend"); n != 1 {
			t.Fatalf("%d nodes extended in the first round, want 1", n)
		}
		down(true, nodes[0])
		down(false, nodes[1])
		if end, answers := lease.Extend(t.Context(), 10*time.Second); end != Missed {
			t.Errorf("the second round: %v with %v", end, answers)
		}
		if lease.Until() != until {
			t.Error("the validity changed")
		}
	})
}

// A round goes on without its caller, and extends the lease. The next caller waits for it.
func TestRoundWithoutItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		thaws := []func(){nodes[0].freeze(), nodes[1].freeze()}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed {
				t.Errorf("it did not wait for the nodes: %v", end)
			}
		}
		for _, thaw := range thaws {
			thaw()
		}
		rest()
		if n := total(nodes, "extend"); n != 3 {
			t.Errorf("%d extensions, want one on each node", n)
		}
		if until.Until(lease.Until()) <= 0 {
			t.Error("the validity is what it was")
		}
		if end, _ := lease.Extend(t.Context(), 20*time.Second); end != Extended {
			t.Errorf("the next round: %v", end)
		}
	})
}
