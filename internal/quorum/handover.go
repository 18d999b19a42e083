package quorum

import (
	"context"

	"github.com/redlatch/redlatch/internal/ballot"
)

// HandOver ends the hold, as Release does, and makes an attempt for claim that
// may take the place of its records: one step on each node in place of two, and
// nobody comes between. A node that has no record of the hold, and none of
// another, grants it as it would any attempt.
//
// decided is called once the attempt is, before the old records' last answers,
// which its validity does not wait for. next is nil when the attempt failed: then
// what it may have left, and the hold's own records, are released. The answers
// are those of Release; ok is false when the hold was given up before, and nothing
// was attempted: next is nil then too.
func (h *Hold) HandOver(claim ballot.Claim, decided func(next *Hold)) (answers []ballot.Answer, ok bool) {
	free := make([]chan struct{}, len(h.seats))
	for i := range free {
		free[i] = make(chan struct{})
	}
	idle, ok := h.finish(nil, true, func(i int) { close(free[i]) })
	if !ok {
		decided(nil)
		return nil, false
	}
	for _, i := range idle {
		close(free[i])
	}
	start := h.engine.clock.Now()
	claim.From, claim.PushIn = h.ID(), true
	next := newHold(h.engine, claim, start) // the time that the hold's steps take is part of the attempt's
	next, _ = next.acquire(context.Background(), start, func(attempt *Hold, ctx context.Context, i int) ballot.Answer {
		if !h.seats[i].asked {
			return attempt.acquireLane(ctx, i)
		}
		<-free[i] // a step of the hold comes first
		a := attempt.acquireLane(ctx, i)
		h.released(i, h.handedOver(i, claim.ID, a))
		return a
	})
	decided(next)
	return h.collect(), true
}

// handedOver releases the record on node i, unless it was handed over to the
// attempt of id, whose answer is a.
func (h *Hold) handedOver(i int, id string, a ballot.Answer) ballot.Answer {
	switch {
	case a.Verdict == ballot.Granted && a.HandedOver:
		return ballot.Answer{Verdict: ballot.Granted, Waiting: a.Waiting}
	case a.Verdict == ballot.Granted:
		return ballot.Answer{Verdict: ballot.NotOurs, Waiting: a.Waiting}
	}
	released := h.releaseOn(i)
	switch {
	case released.Verdict == ballot.Held && released.Holder == id:
		released.Verdict = ballot.Granted // the answer was lost, and it was done
	case (released.Verdict == ballot.NotOurs || released.Verdict == ballot.Held) && a.Verdict == ballot.Unknown:
		// It may have been done, and undone since, and another have come: nobody can say
		// that it was lost.
		released = ballot.Answer{Verdict: ballot.Unknown, Err: a.Err, Waiting: released.Waiting}
	}
	return released
}
