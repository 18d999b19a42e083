package waitqueue

import (
	"container/list"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Between processes a node keeps the wait queue. Inside one process, the callers for a key wait in
// the order of their calls: one of them contends for all, and a holder hands over to the next
// without letting go. So the turn moves:
//
//	a holder releases, and a caller waits   successor, then serve: hand gives that caller a lease to
//	                                        hold by (took), or nil, which is leave to contend
//	but the caller has gone                 another, with which serve goes on; without one, pass
//	a holder lets go                        next gives the first waiter leave to contend
//	who contended has failed                pass, then next
//	a turn has come to who just left        decline: serve with the lease that came, else pass

// maxHanded is how often in a row a process may hand a key over inside itself while other
// processes wait for it.
const maxHanded = 8

// maxBlock is how many callers in a row may hold by one attempt. Tokens must not run ahead of the
// clocks, in µs, that stand in for them where a node forgets: no server grants one name every 8 µs.
const maxBlock = 8

// local is the part of the wait queue for one key that is inside this process. Queue.mu guards all
// but ticket.
type local struct {
	key string
	// holder is the caller of this process that holds the key, if one does, and last is the one that
	// held it last.
	holder, last *Holder
	// waiters is nil until there is a waiter.
	waiters *list.List // of *waiter
	// ticket is the process's place in the wait queue between processes, nil when it has none. It
	// belongs to the caller that contends.
	ticket *Ticket
	// failure is what last stood in the way of the callers that contended.
	failure error
	// handed counts how often the key was handed to the next caller since it was acquired, or
	// since a node last said that no other process waits.
	handed int
	// busy: a caller contends, or is being handed the key.
	busy bool
	// remote: since the key was last acquired, other processes were seen waiting for it, or nobody
	// could say. asking: a node is being asked.
	remote, asking bool
	// shared: it belongs to a single reader, and nobody waits behind that.
	shared bool
}

// waiter is a caller who waits for its turn.
type waiter struct {
	caller Caller
	// turn is sent to once, with Queue.mu held, after the waiter left the queue. It gets a lease to
	// hold by, or nil, which is leave to contend.
	turn  chan *quorum.Lease
	entry *list.Element // nil when its turn has come
	gone  bool          // its caller no longer waits for turn
}

// enter lets a caller in. If w is nil the caller may contend, else it must wait for w.turn.
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

// quit takes out a waiter whose caller waits no longer. If its turn had come already, quit returns
// it, and ok is true.
func (q *Queue) quit(l *local, w *waiter) (lease *quorum.Lease, ok bool) {
	q.mu.Lock()
	if w.entry != nil {
		l.waiters.Remove(w.entry)
		unused := q.next(l)
		q.mu.Unlock()
		unused.Leave()
		return nil, false
	}
	defer q.mu.Unlock()
	w.gone = true
	select {
	case lease = <-w.turn:
		return lease, true
	default:
		return nil, false // hand sees gone
	}
}

// hand gives w its turn. It reports false if the caller of w has gone.
func (q *Queue) hand(w *waiter, lease *quorum.Lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.gone {
		return false
	}
	w.turn <- lease
	return true
}

// waiting returns how many wait. The caller holds Queue.mu.
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

// pass lets the next caller contend in place of the one that was busy.
func (q *Queue) pass(l *local) {
	q.mu.Lock()
	l.busy = false
	unused := q.next(l)
	q.mu.Unlock()
	unused.Leave()
}

// next lets the first waiter contend, if nobody contends and nobody holds the key. It returns the
// ticket, if there is one, that nobody here can use any more. The caller holds q.mu.
func (q *Queue) next(l *local) (unused *Ticket) {
	if l.busy || l.holder != nil && l.waiting() > 0 {
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

// tidy forgets l if nobody here contends, holds or waits. The caller holds q.mu.
func (q *Queue) tidy(l *local) {
	if !l.busy && l.holder == nil && l.waiting() == 0 {
		delete(q.locals, l.key)
	}
}

// Acquired notes that a caller of this process holds its key, which it acquired without a place in
// the queue.
func (q *Queue) Acquired(h *Holder) { q.acquired(h, false, false) }

// acquired notes that h holds its key, and whether callers of other processes wait for it (remote). served:
// h is the caller that was busy.
func (q *Queue) acquired(h *Holder, served, remote bool) {
	q.mu.Lock()
	l := q.open(h.Caller.Key())
	l.busy = l.busy && !served
	l.handed, l.remote = 0, remote
	unused := q.held(l, h)
	q.mu.Unlock()
	unused.Leave()
}

// took notes that h, which was busy, holds its key, which was given to it. Unlike after acquired, handed and
// remote stay: the process has had the key all the time.
func (q *Queue) took(h *Holder) {
	q.mu.Lock()
	l := q.open(h.Caller.Key())
	l.busy = false
	unused := q.held(l, h)
	q.mu.Unlock()
	unused.Leave()
}

// held makes h the holder in l. The caller holds q.mu.
func (q *Queue) held(l *local, h *Holder) (unused *Ticket) {
	h.local, l.holder, l.last, l.failure = l, h, h, nil
	if h.gone {
		l.holder = nil
		return q.next(l)
	}
	return nil
}

// LetGo lets the next caller contend for the key that h does not hold any more. It does not block.
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
	unused.Leave()
}

// successor returns the waiter that h must hand its key over to, which makes the queue busy; nil
// when h must release the key.
func (q *Queue) successor(h *Holder) (*local, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := h.local
	if l == nil || l.holder != h || l.busy {
		return nil, nil
	}
	// rule: readers-before-next-writer
	if l.remote && l.handed >= maxHanded || q.hasReaders(l.key) {
		return nil, nil
	}
	w := l.pop()
	if w == nil {
		return nil, nil
	}
	l.holder, l.busy = nil, true
	l.handed++
	return l, w
}

// another returns a further waiter for a key whose successor has gone.
func (q *Queue) another(l *local) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return l.pop()
}

// moreTokens returns how many more tokens an attempt for request asks for, for the callers behind its
// own: none for several keys, which are not passed on. Nobody waits behind a reader.
func (q *Queue) moreTokens(l *local, request vote.Acquire) uint8 {
	if q.options.Succeed == nil || request.With != nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return uint8(min(maxBlock-1, l.waiting()))
}

// fail records why the caller that contends has failed.
func (q *Queue) fail(l *local, failure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.failure = failure
}

// tell tells a caller that waits inside this process what it waits for.
func (q *Queue) tell(l *local, c Caller) {
	q.mu.Lock()
	holder, failure := l.holder, l.failure
	if failure == nil { // nothing is known to be in the way of the caller that has the key now, or is about to
		holder = l.last
	}
	q.mu.Unlock()
	c.Behind(holder, failure)
}
