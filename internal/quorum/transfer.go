package quorum

import (
	"context"

	"github.com/redlatch/redlatch/internal/vote"
)

// Transfer ends the lease, as Release does, and makes an attempt for request that
// may take the place of its records: one step on each node in place of two, and
// nobody comes between. A node that has no record of the lease, and none of
// another, grants it as it would any attempt.
//
// decided is called once the attempt is, before the old records' last answers,
// which its validity does not wait for. next is nil when the attempt failed: then
// what it may have left, and the lease's own records, are released. The answers
// are those of Release; ok is false when the lease was given up before, and nothing
// was attempted: next is nil then too.
func (l *Lease) Transfer(request vote.Acquire, decided func(next *Lease)) (answers []vote.Answer, ok bool) {
	free := make([]chan struct{}, len(l.nodes))
	for i := range free {
		free[i] = make(chan struct{})
	}
	idle, ok := l.finish(nil, true, func(i int) { close(free[i]) })
	if !ok {
		decided(nil)
		return nil, false
	}
	for _, i := range idle {
		close(free[i])
	}
	start := l.engine.clock.Now()
	request.From, request.Barge = l.ID(), true
	next := newLease(l.engine, request, start) // the time that the lease's steps take is part of the attempt's
	next, _ = next.acquire(context.Background(), start, func(attempt *Lease, ctx context.Context, i int) vote.Answer {
		if !l.nodes[i].asked {
			return attempt.acquireStep(ctx, i)
		}
		<-free[i] // a step of the lease comes first
		a := attempt.acquireStep(ctx, i)
		l.released(i, l.releaseUnlessTaken(i, request.ID, a))
		return a
	})
	decided(next)
	return l.collect(), true
}

// releaseUnlessTaken releases the record on node i, unless it was handed over to the
// attempt of id, whose answer is a.
func (l *Lease) releaseUnlessTaken(i int, id string, a vote.Answer) vote.Answer {
	switch {
	case a.Verdict == vote.Granted && a.Transferred:
		return vote.Answer{Verdict: vote.Granted, Waiting: a.Waiting}
	case a.Verdict == vote.Granted:
		return vote.Answer{Verdict: vote.NotOurs, Waiting: a.Waiting}
	}
	released := l.releaseOn(i)
	switch {
	case released.Verdict == vote.Held && released.Holder == id:
		released.Verdict = vote.Granted // the answer was lost, and it was done
	case (released.Verdict == vote.NotOurs || released.Verdict == vote.Held) && a.Verdict == vote.Unknown:
		// It may have been done, and undone since, and another have come: nobody can say
		// that it was lost.
		released = vote.Answer{Verdict: vote.Unknown, Err: a.Err, Waiting: released.Waiting}
	}
	return released
}
