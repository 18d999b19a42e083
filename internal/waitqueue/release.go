package waitqueue

import (
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Release ends what h holds by lease. If h still holds the key and a caller waits in this process,
// it gives the lease to that caller, else it releases the keys. It waits for the nodes as
// Lease.Release does. If there are no votes, the nodes were not asked. ok is false when the lease
// was over before.
func (q *Queue) Release(h *Holder, lease *quorum.Lease) (votes []vote.Answer, ok bool) {
	if l, w := q.successor(h); w != nil {
		q.ask(l)
		return q.serve(l, w, lease)
	}
	votes, ok = lease.Release()
	q.LetGo(h)
	return votes, ok
}

// serve gives lease to w, or to the next in the queue when w has gone; if there is none it releases
// the lease. The next caller holds by the same attempt if that is as good as one of its own; else
// the keys are transferred to it, or released so that it can contend. If there are no votes, the
// nodes were not asked.
func (q *Queue) serve(l *local, w *waiter, lease *quorum.Lease) (votes []vote.Answer, ok bool) {
	for ; w != nil && q.options.Life.Err() == nil; w = q.another(l) {
		var next *quorum.Lease
		if q.options.Succeed != nil {
			next = q.options.Succeed(w.caller, lease)
		}
		switch {
		case next == nil && q.transfers != nil && lease.Transferable():
			return q.transfer(l, w, lease)
		case next == nil:
			votes, ok = lease.Release()
			if !q.hand(w, nil) {
				q.pass(l)
			}
			return votes, ok
		case q.hand(w, next):
			return nil, true
		}
		lease = next
	}
	votes, ok = lease.Release()
	q.pass(l)
	return votes, ok
}

// transfer ends lease in favour of an attempt for w, or for the next in the queue when w has gone.
func (q *Queue) transfer(l *local, w *waiter, lease *quorum.Lease) (votes []vote.Answer, ok bool) {
	request := w.caller.Request()
	request.More = q.moreTokens(l, request)
	votes, ok = q.transfers.Transfer(lease, request, func(next *quorum.Lease) {
		if !q.hand(w, next) {
			q.decline(l, next)
		}
	})
	if ok && votes[q.Arbiter(l.key)].Verdict == vote.Granted {
		q.heard(l)
	}
	return votes, ok
}

// decline passes on a turn that came too late.
func (q *Queue) decline(l *local, lease *quorum.Lease) {
	if lease != nil {
		q.serve(l, q.another(l), lease)
		return
	}
	q.pass(l)
}
