package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/clock"
)

// Grant is the record on one node that a release has given to an attempt which had not
// begun: for a short TTL, so that nobody is held up for long if the attempt never does.
type Grant struct {
	Voter  int
	Answer ballot.Answer
	// Since is when it was asked for, or before, and TTL for how long.
	Since clock.Instant
	TTL   time.Duration
}

// Accept makes an attempt for claim as Acquire does, with the vote that g is. It is over at
// once with one node, which is not asked. The hold's validity is the grant's, until an
// extension; ok is false, and nothing was attempted, when no more than least of that is left.
func (e *Engine) Accept(ctx context.Context, claim ballot.Claim, g Grant, least time.Duration) (h *Hold, answers []ballot.Answer, ok bool) {
	start, until := e.clock.Now(), g.Since.Add(g.TTL-Drift(g.TTL))
	if start.Reached(until.Add(-least)) {
		return nil, nil, false
	}
	h = newHold(e, claim)
	h.granted = until
	h.seats[g.Voter] = seat{answer: g.Answer, stored: g.Answer.Token, waiting: g.Answer.Waiting, ours: true, brief: true}
	if g.Answer.Waiting {
		e.waiting(claim.Record)
	}
	if len(e.voters) == 1 {
		h.attempt.unlimit()
		h.until = until
		h.keep(g.Answer.Token, start)
		return h, nil, true
	}
	h, answers = h.acquire(ctx, start, (*Hold).takeOverLane)
	return h, answers, true
}

// Short reports that the hold has a record that was granted for a short TTL and that is not
// known to have been extended or lost.
func (h *Hold) Short() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.seats, func(s seat) bool { return s.brief })
}

// spare returns the seats that an extension to until need not ask: those that were granted
// for the TTL when one was for less, which is all that the extension has to mend. There are
// none when that is too long ago; else until is no later than the attempt gave them. The
// caller holds h.mu.
func (h *Hold) spare(until clock.Instant, ttl time.Duration) ([]bool, clock.Instant) {
	rest := h.rest
	h.rest = clock.Instant{}
	if rest == (clock.Instant{}) || rest.Until(until) > Drift(ttl) {
		return nil, until
	}
	spared, others := make([]bool, len(h.seats)), 0
	for i, s := range h.seats {
		spared[i] = !s.brief && !s.busy && s.answer.Verdict == ballot.Granted && s.stored >= h.token
		if spared[i] {
			others++
		}
	}
	if others+1 < Majority(len(h.seats)) {
		return nil, until
	}
	return spared, until.Earlier(rest)
}
