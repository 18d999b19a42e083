package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
)

// The validity of a record that a release granted runs from before the bid was sent,
// however late that is heard of; what is left of too short a one is not held by it.
func TestAccept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 1)
		e := newEngine(t, nodes)
		claim := claimOf("bid")
		valid := claim.TTL - Drift(claim.TTL)
		for _, least := range []time.Duration{0, valid / 4} {
			for _, late := range []time.Duration{0, valid / 2, valid - least - 1, valid - least, valid + time.Second} {
				sent := e.clock.Now()
				time.Sleep(late)
				nodes[0].set(func(s *server) { s.id, s.expires = "bid", time.Time{} })
				h, ok := e.Accept(claim, sent, ballot.Answer{Verdict: ballot.Granted, Token: 7}, least)
				if want := late < valid-least; ok != want {
					t.Errorf("%v late, at least %v of %v: %t", late, least, valid, ok)
				}
				if !ok {
					continue
				}
				if got := sent.Until(h.Until()); got != valid || h.Token() != 7 || h.ID() != "bid" {
					t.Errorf("%v late: valid for %v from the bid on, want %v; token %d, id %q", late, got, valid, h.Token(), h.ID())
				}
				if answers, ok := h.Release(); !ok || answers[0].Verdict != ballot.Granted {
					t.Errorf("release: %v, %t", answers, ok)
				}
			}
		}
	})
}
