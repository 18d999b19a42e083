package quorum

import (
	"context"
	"slices"

	"github.com/redlatch/redlatch/internal/ballot"
)

// HandOver ends the hold, as Release does, and makes an attempt for claim that
// may take the place of its records: one step on each node in place of two, and
// nobody comes between. A node that has no record of the hold, and none of
// another, grants it as it would any attempt.
//
// next is nil when the attempt failed: then what it may have left, and the
// hold's own records, are released. The answers are those of Release; ok is
// false when the hold was given up before, and nothing was attempted.
func (h *Hold) HandOver(claim ballot.Claim) (next *Hold, answers []ballot.Answer, ok bool) {
	r := &releasing{hold: h, votes: make(chan vote, len(h.seats))}
	idle, ok := r.begin()
	if !ok {
		return nil, nil, false
	}
	start := h.engine.clock.Now()
	claim.From = h.claim.ID
	attempt := newHold(h.engine, h.engine.proposed(claim))
	next, _ = attempt.acquire(context.Background(), start, func(round *span, i int) ballot.Answer {
		ours, free := slices.Contains(r.asked, i), slices.Contains(idle, i)
		if ours && !free {
			return attempt.skipLane(i) // a step of the hold is under way there
		}
		a := attempt.acquireLane(round, i)
		switch {
		case !ours:
		case a.Verdict != ballot.Granted:
			r.lane(i)
		case a.HandedOver:
			r.done(i, ballot.Answer{Verdict: ballot.Granted, Waiting: a.Waiting})
		default:
			r.done(i, ballot.Answer{Verdict: ballot.NotOurs, Waiting: a.Waiting})
		}
		return a
	})
	return next, r.collect(), true
}

// skipLane answers for node i, which is not asked.
func (h *Hold) skipLane(i int) ballot.Answer {
	a := ballot.Answer{Verdict: ballot.NotSent}
	h.leave(i, func(s *seat) { s.answer = a })
	return a
}
