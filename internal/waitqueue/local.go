package waitqueue

import (
	"container/list"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Between processes the wait queue is kept by a node. Inside one, the callers for a key wait
// in the order of their calls: one of them contends for all, and a holder hands over to the
// next without letting go.

// maxTransfers is how often in a row a process may hand a key over inside itself
// while others wait for it elsewhere.
const maxTransfers = 8

// maxBlock is how many callers in a row may hold by one attempt. Tokens must not run
// ahead of the clocks in µs that stand in for them where a node forgets: no server grants
// one name every 8 µs.
const maxBlock = 8

// local is the part of the wait queue for one key that is inside this process. Queue.mu
// guards it but for ticket.
type local struct {
	key string
	// holder is the caller who holds the key, if one of this process does.
	holder *Holder
	// waiters is nil until there is one.
	waiters *list.List // of *waiter
	// ticket is the process's place in the wait queue between processes; nil when it has
	// none. It belongs to the caller who contends.
	ticket *Ticket
	// failure is what last stood in the way of the callers who contended.
	failure error
	// transfers counts how often the key was given to the next caller since it was acquired,
	// or since a node last said that nobody waits elsewhere.
	transfers int
	// busy: a caller contends, or is being handed the key.
	busy bool
	// remote: since the key was last acquired, others were seen waiting for it
	// elsewhere, or nobody could say. asking: somebody is being asked.
	remote, asking bool
	// shared: it is that of a single reader, whom nobody waits behind.
	shared bool
}

// waiter is a caller who waits for its turn.
type waiter struct {
	caller Caller
	// turn is sent to once, with Queue.mu held, after the waiter left the queue: a lease to
	// hold by, or nil, which is leave to contend.
	turn  chan *quorum.Lease
	entry *list.Element // nil when it has left the queue
	gone  bool          // its caller does not wait for turn any more
}

// enter lets a caller in: to contend, when w is nil, or to wait for w.turn.
func (q *Queue) enter(c Caller) (l *local, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l = q.open(c.Key())
	if !l.busy && l.holder == nil {
		l.busy = true
		return l, nil
	}
	w = &waiter{caller: c, turn: make(chan *quorum.Lease, 1)}
	if l.waiters == nil {
		l.waiters = list.New()
	}
	w.entry = l.waiters.PushBack(w)
	return l, w
}

// open returns the key's queue in this process. The caller holds q.mu.
func (q *Queue) open(key string) *local {
	l := q.locals[key]
	if l == nil {
		l = &local{key: key}
		q.locals[key] = l
	}
	return l
}

// quit takes a waiter out whose caller waits no longer. A turn that had come to
// it already is returned, with ok.
func (q *Queue) quit(l *local, w *waiter) (lease *quorum.Lease, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.entry != nil {
		l.waiters.Remove(w.entry)
		w.entry = nil
		q.tidy(l)
		return nil, false
	}
	w.gone = true
	select {
	case lease = <-w.turn:
		return lease, true
	default:
		return nil, false // hand is told by gone
	}
}

// hand gives w its turn, and reports whether somebody still waits for it.
func (q *Queue) hand(w *waiter, lease *quorum.Lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.gone {
		return false
	}
	w.turn <- lease
	return true
}

// waiting is how many wait. The caller holds Queue.mu.
func (l *local) waiting() int {
	if l.waiters == nil {
		return 0
	}
	return l.waiters.Len()
}

// pop takes the first waiter out. The caller holds Queue.mu.
func (l *local) pop() *waiter {
	if l.waiting() == 0 {
		return nil
	}
	w := l.waiters.Remove(l.waiters.Front()).(*waiter)
	w.entry = nil
	return w
}

// pass lets the next caller contend in place of the one who was busy.
func (q *Queue) pass(l *local) {
	q.mu.Lock()
	l.busy = false
	unused := q.next(l)
	q.mu.Unlock()
	unused.leave()
}

// next lets the first waiter contend, if nobody does and nobody holds the key. It returns
// the ticket that nobody here has a use for any more, if any. The caller holds q.mu.
func (q *Queue) next(l *local) (unused *Ticket) {
	if l.busy || l.holder != nil {
		return nil
	}
	if w := l.pop(); w != nil {
		l.busy = true
		w.turn <- nil
		return nil
	}
	unused, l.ticket = l.ticket, nil
	q.tidy(l)
	return unused
}

func (q *Queue) tidy(l *local) {
	if !l.busy && l.holder == nil && l.waiting() == 0 {
		delete(q.locals, l.key)
	}
}

// Acquired notes that a caller of this process holds its key, which it has acquired without
// a place in the queue.
func (q *Queue) Acquired(h *Holder) { q.acquired(h, false, false) }

// acquired notes that h holds its key, and whether others wait for it elsewhere; served, that
// h is the caller who was busy.
func (q *Queue) acquired(h *Holder, served, others bool) {
	q.mu.Lock()
	l := q.open(h.Caller.Key())
	l.busy = l.busy && !served
	l.transfers, l.remote = 0, others
	unused := q.held(l, h)
	q.mu.Unlock()
	unused.leave()
}

// took notes that h, who was busy, holds its key, which was given to it.
func (q *Queue) took(h *Holder) {
	q.mu.Lock()
	l := q.open(h.Caller.Key())
	l.busy = false
	unused := q.held(l, h)
	q.mu.Unlock()
	unused.leave()
}

// held makes h the holder in l. The caller holds q.mu.
func (q *Queue) held(l *local, h *Holder) (unused *Ticket) {
	h.local, l.holder, l.failure = l, h, nil
	if h.gone {
		l.holder = nil
		return q.next(l)
	}
	return nil
}

// LetGo lets the next caller contend for what h does not hold any more. It does not block.
func (q *Queue) LetGo(h *Holder) {
	q.mu.Lock()
	h.gone = true
	var unused *Ticket
	if l := h.local; l != nil && l.holder == h {
		l.holder = nil
		if l.remote {
			q.mark(l.key)
		}
		unused = q.next(l)
	}
	q.mu.Unlock()
	unused.leave()
}

// successor returns the waiter that h is to hand its key over to, who is busy from
// then on; nil when h is to release it.
func (q *Queue) successor(h *Holder) (*local, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := h.local
	if l == nil || l.holder != h || l.busy {
		return nil, nil
	}
	// rule: readers-before-next-writer
	if l.remote && l.transfers >= maxTransfers || len(q.readers[l.key]) > 0 {
		return nil, nil
	}
	w := l.pop()
	if w == nil {
		return nil, nil
	}
	l.holder, l.busy = nil, true
	l.transfers++
	return l, w
}

// another returns a further waiter for a key whose successor has gone.
func (q *Queue) another(l *local) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return l.pop()
}

// behind is how many tokens more an attempt for request asks for, for those behind its caller. They
// do not go on with the keys of several locks.
func (q *Queue) behind(l *local, request vote.Acquire) uint8 {
	if q.options.Succeed == nil || request.With != nil || request.Shared {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return uint8(min(maxBlock-1, l.waiting()))
}

// fail records why the caller who contends has failed.
func (q *Queue) fail(l *local, failure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.failure = failure
}

// tell tells a caller who waits inside this process what it waits for.
func (q *Queue) tell(l *local, c Caller) {
	q.mu.Lock()
	holder, failure := l.holder, l.failure
	q.mu.Unlock()
	c.Behind(holder, failure)
}
