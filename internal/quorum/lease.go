package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// Lease is one attempt's keys on the nodes, from its first command to the
// release of the last. It is safe for concurrent use.
type Lease struct {
	engine *Engine

	// request is what the attempt asks for.
	request vote.Acquire
	// attempt is the context of its steps.
	attempt roundContext

	mu sync.Mutex // guards what follows; never held across a command
	// nodes has one for each node: single, where there is one.
	nodes  []nodeState
	single [1]nodeState
	state  state
	// token is that of the attempt, once it is held.
	token uint64
	// unused is how many of the tokens before that one nobody has yet: the attempt's
	// block without those that were given out.
	unused uint64
	// ttl is the longest given.
	ttl time.Duration
	// extending is the context of the extension that may be under way.
	extending *roundContext
	// confirmed is the context of the last extension that a quorum confirmed.
	confirmed *roundContext
	// extension is closed when the extension under way is decided; nil when
	// there is none.
	extension chan struct{}
	until     clock.Instant
	// decided is when the attempt was.
	decided clock.Instant
	// release is the round that ends the lease, once it is over.
	release releasing
}

// state is what became of a lease.
//
//	acquiring ── win ──→ held ── Release ──→ released
//	    │                 ├──── Transfer ──→ transferred
//	    └ giveUp → failed └───── Detach ───→ detached
type state uint8

const (
	acquiring   state = iota // its attempt is under way
	held                     // a quorum stores its token; until is the end of its validity
	failed                   // the attempt failed: what it may have left is deleted
	released                 // its keys are deleted, or left to a waiter that was woken up
	transferred              // its keys are replaced by another lease's, or deleted
	detached                 // its keys stay, for others to extend and to release
)

// over reports that nothing but releases is sent for l any more. The caller holds l.mu.
func (l *Lease) over() bool { return l.state > held }

// nodeState is what is known of the key on one node.
type nodeState struct {
	answer vote.Answer
	// stored is the counter that the node is known to have at least.
	stored uint64
	// ours: the node may hold our key.
	ours bool
	// gone: asked to extend, the node said that it does not. missing: nor does it
	// hold another's.
	gone, missing bool
	// waiting: others were in the queue there when the key was granted.
	waiting bool
	// busy: a step is under way. Only the goroutine that made it true may send
	// to the node, so that the node sees one step after the other.
	busy bool
	// asked: it is released by the round that ended the lease; due: as soon as the
	// step under way is over, by its goroutine.
	asked, due bool
}

// newLease returns the lease of an attempt that is made for request and began at start.
func newLease(e *Engine, request vote.Acquire, start clock.Instant) *Lease {
	l := &Lease{engine: e, request: request, ttl: request.TTL}
	l.attempt.begin(e, start.Mono, e.timeout)
	if l.nodes = l.single[:]; len(e.voters) != len(l.single) {
		l.nodes = make([]nodeState, len(e.voters))
	}
	return l
}

// Token returns the attempt's fencing token, the first of its block.
func (l *Lease) Token() uint64 {
	return l.token - l.request.More
}

// Successor returns a token for one more holder, who comes after all to whom the
// attempt has given one and wants the lock for ttl: the next of its block. There is none
// when the block is used up, when an attempt of the successor's own would have a
// validity that is longer by more than the drift, or another ttl, and when no quorum holds
// the key any more: an extension whose caller has left may have found that.
//
// A quorum stores the block's last token, so that every other attempt's tokens are
// larger than all of the block, or smaller.
func (l *Lease) Successor(ttl time.Duration) (token uint64, ok bool) {
	now := l.engine.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := now.Until(l.until) >= ttl-2*Drift(ttl)
	if l.over() || l.unused == 0 || l.ttl != ttl || !fresh || l.extension != nil || l.impossible() {
		return 0, false
	}
	l.unused--
	return l.token - l.unused, true
}

// Detach ends the lease and leaves its keys where they are, for somebody else to extend
// and to release by the holder id. ok is false when it was over before.
func (l *Lease) Detach() (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok = !l.over(); ok {
		l.state = detached
	}
	return ok
}

// Decided returns when the attempt was decided.
func (l *Lease) Decided() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decided
}

// Answer returns node i's last answer; Unknown without an error when none has
// come.
func (l *Lease) Answer(i int) vote.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[i].answer
}

// ID returns the holder id.
func (l *Lease) ID() string {
	return l.request.ID
}

// Until returns the end of the validity.
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Impossible reports that more nodes have said they hold no key of ours than
// a quorum can do without.
func (l *Lease) Impossible() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.impossible()
}

// impossible is Impossible. The caller holds l.mu.
func (l *Lease) impossible() bool {
	gone := 0
	for i := range l.nodes {
		if l.nodes[i].gone {
			gone++
		}
	}
	// rule: lost-without-quorum
	return gone > len(l.nodes)-Majority(len(l.nodes))
}

// acquireStep runs the acquire step on node i, which is busy already.
func (l *Lease) acquireStep(ctx context.Context, i int) vote.Answer {
	var a vote.Answer // no reply, should a panic of ctx end the step
	defer func() {
		l.leave(i, func(s *nodeState) {
			s.answer = a
			s.stored, s.waiting = a.Token, a.Waiting
			// A node that may have executed the step may hold the key.
			s.ours = a.MayHold()
		})
	}()
	a = l.engine.voters[i].Acquire(ctx, l.requestOf(i))
	if a.Waiting || a.Reserved() {
		l.engine.waiting(l.request.Key) // an answer that is too late for the attempt tells it too
	}
	return a
}

// requestOf is the request as node i is to see it: only the node that keeps the queue
// knows of the ticket.
func (l *Lease) requestOf(i int) vote.Acquire {
	r := l.request
	if r.Ticket.Waiter != "" && r.Ticket.Node != i {
		r.Ticket, r.Barge = vote.Ticket{}, true
	}
	return r
}

// confirmStep runs the confirm step on node i. It is not busy: the node
// has answered the acquire step.
func (l *Lease) confirmStep(i int, request vote.Confirm) vote.Answer {
	if !l.enter(i) {
		return vote.Answer{Verdict: vote.NotSent}
	}
	a := l.engine.voters[i].Confirm(&l.attempt, request)
	l.leave(i, func(s *nodeState) {
		s.answer = a
		if a.Verdict == vote.Granted {
			s.stored = request.Token
		}
	})
	return a
}

// enter makes node i busy, unless a step is under way there or the lease
// is over.
func (l *Lease) enter(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over() || l.nodes[i].busy {
		return false
	}
	l.nodes[i].busy = true
	return true
}

// leave ends the step under way on node i, after note took in its answer, and
// runs what was to follow it.
func (l *Lease) leave(i int, note func(*nodeState)) {
	l.mu.Lock()
	s := &l.nodes[i]
	note(s)
	s.busy = false
	due := s.due
	s.due = false
	l.mu.Unlock()
	if due {
		l.freed(i)
	}
}

// win ends a successful attempt. Steps that no answer has come to go on in the
// background.
func (l *Lease) win(token uint64, now clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.token, l.unused, l.decided = held, token, l.request.More, now
}

// fail gives an attempt up, undoes it in the background, and returns the nodes'
// answers so far.
func (l *Lease) fail() []vote.Answer {
	answers := make([]vote.Answer, len(l.nodes))
	l.mu.Lock()
	for i := range l.nodes {
		answers[i] = l.nodes[i].answer
	}
	l.mu.Unlock()
	// rule: failure-undone
	l.giveUp()
	return answers
}
