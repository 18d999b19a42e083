package redlatch

import (
	"container/list"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// Between processes the wait queue is kept by a node. Inside one, the callers for a
// lock stand in a queue here, in the order of their calls: one of them contends
// for all, and a holder hands over to the next without letting go.

// maxTransfers is how often in a row a process may hand a lock over inside itself
// while others wait for it elsewhere.
const maxTransfers = 8

// maxBlock is how many callers in a row may hold by one attempt. Tokens must not run
// ahead of the clocks in µs that stand in for them where a node forgets: no server grants
// one name every 8 µs.
const maxBlock = 8

// queues are the wait queues of one process.
type queues struct {
	mu sync.Mutex // guards what follows; nothing is called while it is held
	// of has a queue for each key that somebody here holds, contends or waits
	// for.
	of map[string]*queue
	// contended has the keys that others were seen waiting for, and until when
	// that is believed: who lets go of one joins the queue for it, and does not
	// barge in.
	contended map[string]time.Time
}

// queue is the queue for one key.
type queue struct {
	key string
	// holder is the lock that this process holds, if it does.
	holder *Lock
	// waiters is nil until there is one.
	waiters *list.List // of *waiter
	// ticket is the process's place in the wait queue between processes; nil when it has
	// none. The caller who contends has it.
	ticket *waitqueue.Ticket
	// failure is what last stood in the way of the callers who contended.
	failure *QuorumError
	// transfers counts the hand-overs since the lock was acquired, or since a node last said
	// that nobody waits elsewhere.
	transfers int
	// busy: a caller contends, or is being transfers the lock.
	busy bool
	// remote: since the lock was last acquired, others were seen waiting for it
	// elsewhere, or nobody could say. asking: somebody is being asked.
	remote, asking bool
}

// waiter is a caller in the queue.
type waiter struct {
	settings *settings
	// turn is sent to once, with queues.mu held, after the waiter left the queue.
	turn  chan turn
	entry *list.Element // nil when it has left the queue
	gone  bool          // its caller does not wait for turn any more
}

// turn is what comes to a waiter: a hold, and the token to hold by it; without a hold,
// leave to contend.
type turn struct {
	lease *quorum.Lease
	token uint64
	since clock.Instant
}

// turnOf is the turn of the first to have hold.
func turnOf(lease *quorum.Lease) turn {
	if lease == nil {
		return turn{}
	}
	return turn{lease, lease.Token(), lease.Decided()}
}

func newQueues() *queues {
	return &queues{of: make(map[string]*queue), contended: make(map[string]time.Time)}
}

// enter lets a caller in: to contend, when w is nil, or to wait for w.turn.
func (s *queues) enter(key string, r *settings) (q *queue, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q = s.open(key)
	if !q.busy && q.holder == nil {
		q.busy = true
		return q, nil
	}
	w = &waiter{settings: r, turn: make(chan turn, 1)}
	if q.waiters == nil {
		q.waiters = list.New()
	}
	w.entry = q.waiters.PushBack(w)
	return q, w
}

// open returns the key's queue. The caller holds s.mu.
func (s *queues) open(key string) *queue {
	q := s.of[key]
	if q == nil {
		q = &queue{key: key}
		s.of[key] = q
	}
	return q
}

// leave takes a waiter out whose caller waits no longer. A turn that had come to
// it already is returned, with ok.
func (s *queues) leave(q *queue, w *waiter) (t turn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.entry != nil {
		q.waiters.Remove(w.entry)
		w.entry = nil
		s.tidy(q)
		return turn{}, false
	}
	w.gone = true
	select {
	case t = <-w.turn:
		return t, true
	default:
		return turn{}, false // hand is told by gone
	}
}

// hand gives w its turn, and reports whether somebody still waits for it.
func (s *queues) hand(w *waiter, t turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.gone {
		return false
	}
	w.turn <- t
	return true
}

// waiting is how many wait. The caller holds s.mu.
func (q *queue) waiting() int {
	if q.waiters == nil {
		return 0
	}
	return q.waiters.Len()
}

// pop takes the first waiter out of the queue. The caller holds s.mu.
func (q *queue) pop() *waiter {
	if q.waiting() == 0 {
		return nil
	}
	w := q.waiters.Remove(q.waiters.Front()).(*waiter)
	w.entry = nil
	return w
}

// pass ends the turn of the caller who was busy, in favour of the next. It
// returns the place in the queue that nobody here has a use for any more, if any.
func (s *queues) pass(q *queue) *waitqueue.Ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.busy = false
	return s.next(q)
}

// next lets the first waiter contend, if nobody does and nobody holds the lock.
// The caller holds s.mu.
func (s *queues) next(q *queue) (unused *waitqueue.Ticket) {
	if q.busy || q.holder != nil {
		return nil
	}
	if w := q.pop(); w != nil {
		q.busy = true
		w.turn <- turn{}
		return nil
	}
	unused, q.ticket = q.ticket, nil
	s.tidy(q)
	return unused
}

func (s *queues) tidy(q *queue) {
	if !q.busy && q.holder == nil && q.waiting() == 0 {
		delete(s.of, q.key)
	}
}

// hold notes that this process holds a key by l, which was handed over to the caller
// who was busy.
func (s *queues) hold(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.open(l.call.key)
	q.busy = false
	s.held(q, l)
}

// acquired notes that this process holds a key by l, and whether others wait for it
// elsewhere; served, that the caller who was busy has it.
func (s *queues) acquired(l *Lock, served, others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.open(l.call.key)
	q.busy = q.busy && !served
	q.transfers, q.remote = 0, others
	s.held(q, l)
}

// held makes l the holder of q. The caller holds s.mu.
func (s *queues) held(q *queue, l *Lock) {
	l.queue, q.holder, q.failure = q, l, nil
	if l.over() {
		// It was lost, or closed, before anybody could know of it here.
		q.holder = nil
		s.next(q)
	}
}

// lost notes that this process holds the key by l no more.
func (s *queues) lost(l *Lock) (unused *waitqueue.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := l.queue
	if q == nil || q.holder != l {
		return nil
	}
	q.holder = nil
	if q.remote {
		s.mark(l.call.key)
	}
	return s.next(q)
}

// successor returns the waiter that l is to be handed over to, who is busy from
// then on; nil when l is to be released.
func (s *queues) successor(l *Lock) (*queue, *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := l.queue
	if q == nil || q.holder != l || q.busy {
		return nil, nil
	}
	if q.remote && q.transfers >= maxTransfers {
		return nil, nil
	}
	w := q.pop()
	if w == nil {
		return nil, nil
	}
	q.holder, q.busy = nil, true
	q.transfers++
	return q, w
}

// behind is how many tokens more the attempt of a caller asks for, for those behind it.
func (s *queues) behind(q *queue) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(maxBlock-1, uint64(q.waiting()))
}

// fail notes what stood in the way of the caller who contends.
func (s *queues) fail(q *queue, failure *QuorumError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.failure = failure
}

// obstacle is what stands in the way of a caller who has made no try: this
// process's own lock, or what the caller who contends met with.
func (s *queues) obstacle(c *call, q *queue) *QuorumError {
	s.mu.Lock()
	holder, failure := q.holder, q.failure
	s.mu.Unlock()
	if holder == nil {
		return failure
	}
	votes := c.client.answers(nil)
	left := time.Until(holder.Until())
	for i := range votes {
		votes[i].Verdict, votes[i].Holder, votes[i].Left = VoteHeld, parseHolder(holder.lease.ID()), left
	}
	e := newQuorumError("lock", c.name, votes)
	e.here, e.site = true, holder.call.site
	return e
}

// another returns a further waiter for a lock whose successor has gone.
func (s *queues) another(q *queue) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.pop()
}
