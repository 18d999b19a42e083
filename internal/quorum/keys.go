package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// keys are what one attempt has on the nodes, from its first command to its last release. They are
// safe for concurrent use.
type keys struct {
	engine *Engine

	// request is what the attempt asks for.
	request vote.Acquire
	// round is the context of the attempt's steps.
	round roundContext

	mu sync.Mutex // guards what follows; never held across a command
	// nodes has one element for each node. It uses single where there is one node.
	nodes  []nodeState
	single [1]nodeState
	// holder is the lease that has the keys: first, until another succeeds it.
	holder *Lease
	first  Lease
	// stored is the counter that a quorum stores, once the attempt is held.
	stored uint64
	// ttl is the longest TTL that the nodes were given.
	ttl time.Duration
	// until is the end of the validity.
	until clock.Instant
	// extending is the context of the last extension: steps of it may be under way although it is decided.
	extending *roundContext
	// lastExtended is the context of the last extension to which a quorum said yes.
	lastExtended *roundContext
	// underWay is closed when the extension under way is decided; nil when there is none.
	underWay chan struct{}
	// ending is the round that ends the last lease.
	ending ending
}

// over reports whether only releases are sent for the keys any more. The caller holds k.mu.
func (k *keys) over() bool { return k.holder.state.over() }

// nodeState is what is known of the key on one node.
type nodeState struct {
	answer vote.Answer
	// stored is the counter that the node is known to have at least.
	stored uint64
	key    keyState
	// waiting: others were in the queue there when the key was granted.
	waiting bool
	// told, if set, is called with the answer to the acquire step, once that has come.
	told func(vote.Answer)
	// busy: a step is under way. Only the goroutine that made it true may send
	// to the node, so that the node sees one step after the other. together: the step under way extends
	// other leases, too.
	busy, together bool
	// toRelease: the round that ended the lease releases the key on this node. due: the goroutine of
	// the step under way, which is not together, does so as soon as that step is over.
	toRelease, due bool
}

// keyState is what the steps before have told of the key on a node.
type keyState uint8

const (
	none     keyState = iota // the node was not asked for our key, or does not hold it by its answer
	ours                     // it may hold our key
	missing                  // asked to extend, it held nobody's key: it may be given ours back
	replaced                 // asked to extend, it held another's key
	repaired                 // it was asked to take our key back, and has not refused: it may hold it
)

// mayHold reports whether the node may hold our key.
func (s keyState) mayHold() bool { return s == ours || s == repaired }

// gone reports whether the node said, when asked to extend, that it does not hold our key.
func (s keyState) gone() bool { return s == missing || s == replaced }

// toRepair reports whether the node lost our key, and has not said that it has it back.
func (s keyState) toRepair() bool { return s == missing || s == repaired }

// newKeys returns the keys of an attempt that is made for request. The time of its steps runs from begun.
func newKeys(e *Engine, request vote.Acquire, begun clock.Instant) *keys {
	k := &keys{engine: e, request: request, ttl: request.TTL}
	k.holder, k.first.keys = &k.first, k
	k.round.begin(e, begun.Mono, e.timeout)
	if k.nodes = k.single[:]; len(e.voters) != len(k.single) {
		k.nodes = make([]nodeState, len(e.voters))
	}
	return k
}

// Answer returns node i's last answer, or Unknown without an error when none has come.
func (k *keys) Answer(i int) vote.Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[i].answer
}

// WhenAnswered calls told with node i's answer to the attempt's acquire step: at once, or when it comes,
// as the attempt may have been decided without it. It does not wait, and told must not block.
func (k *keys) WhenAnswered(i int, told func(vote.Answer)) {
	k.mu.Lock()
	s := &k.nodes[i]
	a := s.answer
	pending := a.Verdict == vote.Unknown && a.Err == nil
	if pending {
		s.told = told
	}
	k.mu.Unlock()
	if !pending {
		told(a)
	}
}

// Queued reports whether the attempt was made with a place in the wait queue, which a grant of the
// node that keeps the queue ends.
func (k *keys) Queued() bool { return k.request.Ticket.Waiter != "" }

// ID returns the holder id.
func (k *keys) ID() string {
	return k.request.ID
}

// Transferable reports whether others may take over the keys one by one: not keys of several names,
// nor those that readers share.
func (k *keys) Transferable() bool { return k.request.With == nil && !k.request.Shared }

// mayLeave reports whether the keys on the other nodes may be left to the waiter that one node wakes up.
func (k *keys) mayLeave() bool {
	return k.engine.transfers != nil && len(k.nodes) > 1 && k.Transferable()
}

// yields reports whether answer a makes the attempt give way: the node keeps a free key for a
// waiter that it woke up, and the attempt has no ticket for that queue, wants several keys, or is a
// reader's.
func (k *keys) yields(a vote.Answer) bool {
	return a.Reserved() && (k.request.Ticket.Waiter == "" || !k.Transferable())
}

// KeptUntil returns the end of the validity that the keys have by their last extension, whether or
// not a holder relies on it.
func (k *keys) KeptUntil() clock.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// Impossible reports whether so many nodes have said that they hold no key of ours that the others
// are no quorum.
func (k *keys) Impossible() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.impossible()
}

// impossible is Impossible. The caller holds k.mu.
func (k *keys) impossible() bool {
	gone := 0
	for i := range k.nodes {
		if k.nodes[i].key.gone() {
			gone++
		}
	}
	// rule: lost-without-quorum
	return gone > len(k.nodes)-Majority(len(k.nodes))
}

// acquireStep runs the acquire step on node i, which is busy already.
func (k *keys) acquireStep(ctx context.Context, i int) vote.Answer {
	var a vote.Answer // Unknown, should ctx panic and end the step
	defer func() {
		var told func(vote.Answer)
		k.leave(i, func(s *nodeState) {
			s.answer, told = a, s.told
			s.stored, s.waiting = a.Counter, a.Waiting
			if a.MayHold() {
				s.key = ours
			}
		})
		if told != nil {
			told(a)
		}
	}()
	a = k.engine.voters[i].Acquire(ctx, k.requestOf(i))
	if a.Waiting || a.Reserved() {
		k.engine.onWaiting(k.request.Key) // also for an answer that is too late for the attempt
	}
	return a
}

// requestOf returns the request as node i is to see it. Only the arbiter sees the ticket. On the
// other nodes, which do not keep the queue, the attempt barges, and they see just the number.
func (k *keys) requestOf(i int) vote.Acquire {
	r := k.request
	if r.Ticket.Waiter != "" && r.Ticket.Node != i {
		r.Ticket, r.Barge = vote.Ticket{Number: r.Ticket.Number}, true
	}
	return r
}

// confirmStep runs the confirm step on node i. The node is not busy: it has answered the acquire
// step.
func (k *keys) confirmStep(i int, request vote.Confirm) vote.Answer {
	if !k.enter(i, false) {
		return vote.Answer{Verdict: vote.NotSent}
	}
	a := k.engine.voters[i].Confirm(&k.round, request)
	k.leave(i, func(s *nodeState) {
		s.answer = a
		if a.Verdict == vote.Granted {
			s.stored = request.Token
		}
	})
	return a
}

// enter makes node i busy. It reports false, and does nothing, where a step is under way there or
// no lease has the keys any more.
func (k *keys) enter(i int, together bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over() || k.nodes[i].busy {
		return false
	}
	k.nodes[i].busy, k.nodes[i].together = true, together
	return true
}

// leave ends the step under way on node i: note takes in its answer, then the release that had to
// wait for the step is done.
func (k *keys) leave(i int, note func(*nodeState)) {
	k.mu.Lock()
	s := &k.nodes[i]
	note(s)
	s.busy, s.together = false, false
	due := s.due
	s.due = false
	k.mu.Unlock()
	switch {
	case !due:
	case k.ending.instead != nil:
		k.ending.instead(i)
	default:
		k.releaseStep(i)
	}
}

// win ends an attempt that succeeded: a quorum stores stored, the last of the counters that the
// attempt asked for. Steps that are not answered yet go on in the background.
func (k *keys) win(stored uint64, now clock.Instant) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stored = stored
	k.first.token, k.first.since, k.first.state = stored-uint64(k.request.More), now, held
	return &k.first
}

// answers returns the nodes' last answers.
func (k *keys) answers() []vote.Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	answers := make([]vote.Answer, len(k.nodes))
	for i := range k.nodes {
		answers[i] = k.nodes[i].answer
	}
	return answers
}
