package redlatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// queue waits for the lock behind the callers of this process who came before,
// and then contends for it with other processes.
func (c *call) queue() (*Lock, error) {
	queues := c.client.queues
	q, w := queues.enter(c.key, &c.settings)
	var t turn
	if w != nil {
		var err error
		if t, err = c.stay(q, w); err != nil {
			return nil, err
		}
	}
	served := false
	// Deferred: a report may panic or end this goroutine, and the next caller is to contend.
	defer func() {
		if !served {
			c.client.pass(q)
		}
	}()
	if t.lease != nil {
		lock := c.hold(t)
		queues.hold(lock)
		served = true
		return lock, nil
	}
	lock, others, err := c.contend(q)
	if lock != nil {
		queues.acquired(lock, true, others)
		served = true
	}
	return lock, err
}

// stay waits for the turn of w.
func (c *call) stay(q *queue, w *waiter) (turn, error) {
	came := false
	// Deferred, as in queue.
	defer func() {
		if came {
			return
		}
		if t, ok := c.client.queues.leave(q, w); ok {
			c.client.decline(q, t.lease)
		}
	}()
	var reports <-chan time.Time
	if c.settings.report != nil || c.client.logs(slog.LevelInfo) {
		c.failure = c.client.queues.obstacle(c, q)
		c.report()
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		reports = ticker.C
	}
	for {
		select {
		case t := <-w.turn:
			came = true
			return t, nil
		case <-reports:
			c.failure = c.client.queues.obstacle(c, q)
			c.report()
		case <-c.ctx.Done():
			c.failure = c.client.queues.obstacle(c, q)
			return turn{}, c.ended()
		case <-c.client.life.Done():
			return turn{}, ErrClosed
		}
	}
}

// decline gives a turn on that came too late.
func (c *Client) decline(q *queue, lease *quorum.Lease) {
	if lease != nil {
		c.serve(q, c.queues.another(q), lease)
		return
	}
	c.pass(q)
}

// contend makes tries until one holds: the first at once, unless others are known
// to wait, and the next when it is this process's turn in the queue. others: more wait for
// the lock elsewhere.
func (c *call) contend(q *queue) (lock *Lock, others bool, err error) {
	inQueue := q.ticket != nil || c.client.queues.hasRemoteWaiters(q)
	var pause time.Duration
	for {
		if err := c.may(); err != nil {
			return nil, false, err
		}
		queued := false
		if inQueue {
			if queued, err = c.await(q, pause); err != nil {
				return nil, false, err
			}
		}
		request := c.request() // after the wait: the id says since when it is held
		if queued {
			request = q.ticket.Attempt(request)
		}
		request.More = c.client.queues.behind(q)
		lock, err = c.try(request)
		if lock != nil {
			if q.ticket != nil {
				arbiter := lock.lease.Answer(q.ticket.Arbiter())
				// Until the node that keeps the wait queue has said otherwise, others wait: by
				// the time that a slow one does, all callers here could have had the lock.
				others = arbiter.Waiting || arbiter.Verdict != vote.Granted
				q.ticket.Taken(arbiter)
				q.ticket = nil
			}
			return lock, others, nil
		}
		c.client.queues.fail(q, c.failure)
		if c.final() {
			return nil, false, err
		}
		c.report()
		if errors.Is(c.failure.kind, ErrHeld) && !inQueue {
			inQueue = true
			continue
		}
		c.failed++
		if queued && c.failed <= swiftTries {
			// Releases, the last holder's or our own, are still on their way.
			pause = c.client.draw(firstPause / 2)
			continue
		}
		// Who is called now may be called by the undoing of its own try: the lock is
		// held by nodes other than the one that keeps the wait queue.
		if err := c.sleep(c.client.pause(c.failure, c.failed-1)); err != nil {
			return nil, false, err
		}
		pause = 0
	}
}

// swiftTries is how many tries of one whose turn it is follow each other at once.
const swiftTries = 4

// await waits for this process's turn, no sooner than after rest unless it is
// called; queued is false when no node keeps a queue.
func (c *call) await(q *queue, rest time.Duration) (queued bool, err error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.client.life, func() { cancel(ErrClosed) })
	defer stop()
	if q.ticket == nil {
		q.ticket = c.client.waitqueue.Join(c.key)
	}
	err = q.ticket.Await(ctx, rest, func(s vote.Position) { c.stands(q, s) })
	if ctx.Err() != nil {
		return false, c.may()
	}
	return err == nil, nil
}

// stands takes in what the node that keeps the wait queue says.
func (c *call) stands(q *queue, s vote.Position) {
	if s.Free() {
		if s.Ahead == 0 {
			c.client.queues.clearContended(c.key)
		}
		return
	}
	c.failed = 0 // the next turn is another
	votes := make([]NodeAnswer, 0, len(c.client.nodes))
	if c.failure != nil {
		votes = slices.Clone(c.failure.Nodes)
	} else {
		votes = append(votes, c.client.answers(nil)...)
		for i := range votes {
			votes[i].Verdict = VoteNotSent
		}
	}
	votes[s.Ticket.Node].Verdict, votes[s.Ticket.Node].Holder, votes[s.Ticket.Node].Left = VoteHeld, parseHolder(s.Holder), s.Left
	c.failure = &QuorumError{Op: "lock", Name: c.name, Need: quorum.Majority(len(votes)), Of: len(votes), Nodes: votes, kind: ErrHeld}
	c.client.queues.fail(q, c.failure)
	c.report()
}

// isForeign reports that a holder is of another library, or of an older kind, and
// calls nobody when it releases.
func isForeign(holder string) bool { return parseHolder(holder).Since.IsZero() }

// giveUp ends the hold of l: by giving it to a caller who waits in this process, if it
// was held, else by releasing it. Without votes nothing was asked of the nodes.
func (c *Client) giveUp(l *Lock, held bool) (votes []vote.Answer, ok bool) {
	if held && c.life.Err() == nil {
		if q, w := c.queues.successor(l); w != nil {
			if c.queues.mustAsk(q) {
				c.waitqueue.Look(q.key, func(others bool) { c.queues.asked(q, others) })
			}
			return c.serve(q, w, l.lease)
		}
	}
	votes, ok = l.lease.Release()
	c.letGo(l)
	return votes, ok
}

// letGo lets the next caller contend for what l does not hold any more.
func (c *Client) letGo(l *Lock) {
	if unused := c.queues.lost(l); unused != nil {
		unused.Leave()
	}
}

// serve gives hold to w, or to the next in the queue when w has gone; without either it
// releases it. The next holds by the same attempt if that is as good as one of its own,
// else the keys are handed over. Without votes nothing was asked of the nodes.
func (c *Client) serve(q *queue, w *waiter, lease *quorum.Lease) (votes []vote.Answer, ok bool) {
	for ; w != nil && c.life.Err() == nil; w = c.queues.another(q) {
		token, ok := lease.Successor(c.firstTTL(w.settings))
		if !ok || parseHolder(lease.ID()).Label != w.settings.label {
			return c.transfer(q, w, lease)
		}
		if c.queues.hand(w, turn{lease, token, c.clock.Now()}) {
			return nil, true
		}
	}
	votes, ok = lease.Release()
	c.pass(q)
	return votes, ok
}

// transfer ends the lease in favour of an attempt for w, or for the next in the queue when w has
// gone.
func (c *Client) transfer(q *queue, w *waiter, lease *quorum.Lease) (votes []vote.Answer, ok bool) {
	c.counters.tries.Add(1)
	request := c.request(q.key, w.settings)
	request.More = c.queues.behind(q)
	votes, ok = lease.Transfer(request, func(next *quorum.Lease) {
		if !c.queues.hand(w, turnOf(next)) {
			c.decline(q, next)
		}
	})
	if ok && votes[c.waitqueue.Arbiter(q.key)].Verdict == vote.Granted {
		c.queues.heard(q)
	}
	return votes, ok
}

// pass lets the next caller contend in place of the one whose turn is over.
func (c *Client) pass(q *queue) {
	if unused := c.queues.pass(q); unused != nil {
		unused.Leave()
	}
}
