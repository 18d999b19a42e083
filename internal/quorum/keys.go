package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// keys are one attempt's on the nodes, from its first command to the release of the last. They
// are safe for concurrent use.
type keys struct {
	engine *Engine

	// request is what the attempt asks for.
	request vote.Acquire
	// attempt is the context of its steps.
	attempt roundContext

	mu sync.Mutex // guards what follows; never held across a command
	// nodes has one for each node: single, where there is one.
	nodes  []nodeState
	single [1]nodeState
	// holder has the keys: first, until another succeeds it.
	holder *Lease
	first  Lease
	// stored is the counter that a quorum stores, once the attempt is held.
	stored uint64
	// ttl is the longest given.
	ttl time.Duration
	// until is the end of the validity.
	until clock.Instant
	// extending is the context of the extension that may be under way.
	extending *roundContext
	// confirmed is the context of the last extension that a quorum confirmed.
	confirmed *roundContext
	// extension is closed when the extension under way is decided; nil when
	// there is none.
	extension chan struct{}
	// release is the round that deletes the keys, once they are nobody's.
	release releasing
}

// over reports that nothing but releases is sent for the keys any more. The caller holds k.mu.
func (k *keys) over() bool { return k.holder.state.over() }

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

// newKeys returns the keys of an attempt that is made for request and began at start.
func newKeys(e *Engine, request vote.Acquire, start clock.Instant) *keys {
	k := &keys{engine: e, request: request, ttl: request.TTL}
	k.holder, k.first.keys = &k.first, k
	k.request.Made = k.request.Words()
	k.attempt.begin(e, start.Mono, e.timeout)
	if k.nodes = k.single[:]; len(e.voters) != len(k.single) {
		k.nodes = make([]nodeState, len(e.voters))
	}
	return k
}

// Answer returns node i's last answer; Unknown without an error when none has
// come.
func (k *keys) Answer(i int) vote.Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[i].answer
}

// ID returns the holder id.
func (k *keys) ID() string {
	return k.request.ID
}

// Transferable reports that another may take the keys over one by one: not those of several locks, nor
// what is shared with others.
func (k *keys) Transferable() bool { return k.request.With == nil && !k.request.Shared }

// yields reports that an arbiter has woken up another to take what the attempt wants: the key, where
// the attempt has no place in its queue, one of several, or what a writer waits for.
func (k *keys) yields(a vote.Answer) bool {
	return a.Reserved() && (k.request.Ticket.Waiter == "" || !k.Transferable())
}

// KeptUntil returns the end of the validity that the keys have by the last extension, whether
// they are relied on or not.
func (k *keys) KeptUntil() clock.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// Impossible reports that more nodes have said they hold no key of ours than
// a quorum can do without.
func (k *keys) Impossible() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.impossible()
}

// impossible is Impossible. The caller holds k.mu.
func (k *keys) impossible() bool {
	gone := 0
	for i := range k.nodes {
		if k.nodes[i].gone {
			gone++
		}
	}
	// rule: lost-without-quorum
	return gone > len(k.nodes)-Majority(len(k.nodes))
}

// acquireStep runs the acquire step on node i, which is busy already.
func (k *keys) acquireStep(ctx context.Context, i int) vote.Answer {
	var a vote.Answer // no reply, should a panic of ctx end the step
	defer func() {
		k.leave(i, func(s *nodeState) {
			s.answer = a
			s.stored, s.waiting = a.Token, a.Waiting
			// A node that may have executed the step may hold the key.
			s.ours = a.MayHold()
		})
	}()
	a = k.engine.voters[i].Acquire(ctx, k.requestOf(i))
	if a.Waiting || a.Reserved() {
		k.engine.waiting(k.request.Key) // an answer that is too late for the attempt tells it too
	}
	return a
}

// requestOf is the request as node i is to see it: only the arbiter
// knows of the ticket, but for its number.
func (k *keys) requestOf(i int) vote.Acquire {
	r := k.request
	if r.Ticket.Waiter != "" && r.Ticket.Node != i {
		r.Ticket, r.Barge = vote.Ticket{Number: r.Ticket.Number}, true
	}
	return r
}

// confirmStep runs the confirm step on node i. It is not busy: the node
// has answered the acquire step.
func (k *keys) confirmStep(i int, request vote.Confirm) vote.Answer {
	if !k.enter(i) {
		return vote.Answer{Verdict: vote.NotSent}
	}
	a := k.engine.voters[i].Confirm(&k.attempt, request)
	k.leave(i, func(s *nodeState) {
		s.answer = a
		if a.Verdict == vote.Granted {
			s.stored = request.Token
		}
	})
	return a
}

// enter makes node i busy, unless a step is under way there or the keys are
// nobody's.
func (k *keys) enter(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over() || k.nodes[i].busy {
		return false
	}
	k.nodes[i].busy = true
	return true
}

// leave ends the step under way on node i, after note took in its answer, and
// runs what was to follow it.
func (k *keys) leave(i int, note func(*nodeState)) {
	k.mu.Lock()
	s := &k.nodes[i]
	note(s)
	s.busy = false
	due := s.due
	s.due = false
	k.mu.Unlock()
	if due {
		k.freed(i)
	}
}

// win ends a successful attempt, for which a quorum stores the last of the counters that it
// asked for. Steps that no answer has come to go on in the background.
func (k *keys) win(stored uint64, now clock.Instant) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stored = stored
	k.first.token, k.first.since, k.first.state = stored-uint64(k.request.More), now, held
	return &k.first
}

// fail gives an attempt up, undoes it in the background, and returns the nodes'
// answers so far.
func (k *keys) fail() []vote.Answer {
	answers := make([]vote.Answer, len(k.nodes))
	k.mu.Lock()
	for i := range k.nodes {
		answers[i] = k.nodes[i].answer
	}
	k.mu.Unlock()
	// rule: failure-undone
	k.giveUp()
	return answers
}
