package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The answers to a round whose caller has left come before the next round, in which only one
// node of three answers: they do not make its quorum.
func TestAnswersOfAnEarlierRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		thaws := []func(){nodes[0].freeze(), nodes[1].freeze()}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed {
			t.Errorf("the first round: %v", end)
		}
		for _, thaw := range thaws {
			thaw()
		}
		rest()
		if n := total(nodes, "extend"); n != 3 {
			t.Fatalf("%d nodes extended in the first round, want 3", n)
		}
		for _, s := range nodes[:2] {
			s.set(func(s *server) { s.down = true })
		}
		if end, answers := lease.Extend(t.Context(), 10*time.Second); end != Missed {
			t.Errorf("the second round: %v with %v", end, answers)
		}
		if lease.Until() != until {
			t.Error("the validity changed")
		}
	})
}
