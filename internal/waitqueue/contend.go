package waitqueue

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// When its process's turn has come, a caller makes swiftTries tries one after the other, each after
// a short rest: the last holder's releases, or its own, are still on their way.
const (
	swiftTries = 4
	swiftRest  = 4 * time.Millisecond
)

// Wait returns when the caller holds its key, or with the error of the caller's end, or with one
// that waiting does not cure. It waits behind the callers of this process who came before, and then
// contends for the key with other processes.
func (q *Queue) Wait(ctx context.Context, c Caller) error {
	l, w := q.enter(c)
	var lease *quorum.Lease
	if w != nil {
		var err error
		if lease, err = q.stay(ctx, l, w); err != nil {
			return err
		}
	}
	served := false
	// Deferred: a report may panic or end this goroutine, and the next caller must contend.
	defer func() {
		if !served {
			q.pass(l)
		}
	}()
	if lease != nil {
		q.took(c.Hold(lease))
		served = true
		return nil
	}
	lease, remote, err := q.contend(ctx, c, l)
	if err != nil {
		return err
	}
	q.acquired(c.Hold(lease), true, remote)
	served = true
	return nil
}

// stay waits for the turn of w. It returns a lease to hold by or, without a lease, leave to
// contend.
func (q *Queue) stay(ctx context.Context, l *local, w *waiter) (*quorum.Lease, error) {
	// Deferred: a report may panic or end this goroutine. A turn that was received is not returned once more.
	defer func() {
		if lease, ok := q.quit(l, w); ok {
			q.decline(l, lease)
		}
	}()
	var reports <-chan time.Time
	if w.caller.Listens() {
		q.tell(l, w.caller)
		w.caller.Report()
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		reports = ticker.C
	}
	for {
		select {
		case lease := <-w.turn:
			if lease == nil {
				q.tell(l, w.caller) // ctx may end before a node has told of anybody else
			}
			return lease, nil
		case <-reports:
			q.tell(l, w.caller)
			w.caller.Report()
		case <-ctx.Done():
			q.tell(l, w.caller)
			return nil, w.caller.Ended()
		case <-q.options.Life.Done():
			return nil, w.caller.Ended()
		}
	}
}

// contend makes tries until one holds. It makes the first at once, unless others are known to wait,
// and each further one when it is this process's turn in the queue. remote: more wait for the key
// in other processes.
func (q *Queue) contend(ctx context.Context, c Caller, l *local) (lease *quorum.Lease, remote bool, err error) {
	inQueue := l.ticket != nil || q.hasRemoteWaiters(l)
	failures := 0 // of the present turn
	var rest time.Duration
	for {
		if err := c.May(); err != nil {
			return nil, false, err
		}
		queued := false
		if inQueue {
			var newTurn bool
			if queued, newTurn, err = q.await(ctx, c, l, rest); err != nil {
				return nil, false, err
			}
			if newTurn {
				failures = 0
			}
		}
		request := c.Request() // after the wait: the id says since when it is held
		if queued {
			request = l.ticket.Attempt(request)
		}
		request.More = q.moreTokens(l, request)
		lease, failure := c.Try(request)
		if lease != nil {
			return lease, q.won(l, lease), nil
		}
		if failure.Final {
			return nil, false, failure.Err
		}
		if failure.Elsewhere {
			return nil, false, ErrElsewhere
		}
		q.fail(l, failure.Err)
		c.Report()
		if failure.Held && !inQueue {
			inQueue = true
			continue
		}
		failures++
		if failure.Unsent {
			// A place ends with a release, which there is not. Those behind must not wait for it.
			l.ticket.Leave()
			l.ticket = nil
			inQueue, queued = false, false
		}
		if queued && failures <= swiftTries {
			rest = q.options.Draw(swiftRest)
			continue
		}
		// A waiter that is woken up now may owe that to the undoing of its own try: nodes other
		// than the one that keeps the wait queue still have the key for a holder.
		if err := c.Rest(failures - 1); err != nil {
			return nil, false, err
		}
		rest = 0
	}
}

// won gives up the ticket by which lease was won, if there was one, and reports whether others
// wait for the key in other processes. Until the arbiter has said otherwise they do: by the time
// that a slow one says so, all callers here could have had the key.
func (q *Queue) won(l *local, lease *quorum.Lease) (remote bool) {
	if l.ticket == nil {
		return false
	}
	arbiter := lease.Answer(l.ticket.Arbiter())
	if lease.Queued() {
		l.ticket.Taken()
		lease.WhenAnswered(l.ticket.Arbiter(), l.ticket.Heard)
	} else { // another node has chosen the slot, and no step ends the place
		l.ticket.Leave()
	}
	l.ticket = nil
	return arbiter.Waiting || arbiter.Verdict != vote.Granted
}

// await waits for this process's turn: for rest at least, unless it is woken up. queued is false
// when no node keeps a queue. newTurn: another holder was seen to have the key meanwhile.
func (q *Queue) await(ctx context.Context, c Caller, l *local, rest time.Duration) (queued, newTurn bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(q.options.Life, func() { cancel(context.Cause(q.options.Life)) })
	defer stop()
	if l.ticket == nil {
		l.ticket = q.join(l.key, l.shared)
		l.ticket.atArbiter.Number = c.Number()
	}
	l.ticket.slots = c.Slots()
	err = l.ticket.Await(ctx, rest, func(p vote.Position) {
		if p.Reserved() && p.Ahead == 0 {
			q.clearContended(l.key)
			return
		}
		newTurn = newTurn || !p.Reserved()
		q.fail(l, c.Queued(p))
		c.Report()
	})
	if ctx.Err() != nil {
		return false, newTurn, c.Ended()
	}
	return err == nil, newTurn, nil
}
