package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/clock"
)

// Hold is one attempt's records on the nodes, from its first command to the
// release of the last. It is safe for concurrent use.
type Hold struct {
	engine *Engine

	// claim is what the attempt asks for.
	claim ballot.Claim
	// attempt is the span of its steps.
	attempt span

	mu sync.Mutex // guards what follows; never held across a command
	// seats has one for each node: single, where there is one.
	seats  []seat
	single [1]seat
	// kept: the attempt succeeded, under token; its place in the line has no meaning
	// any more.
	kept bool
	// over: given up, released or failed. Nothing but releases is sent then.
	over  bool
	token uint64
	// unused is how many of the tokens before that one nobody has yet: the attempt's
	// block without those that were given out.
	unused uint64
	// ttl is the longest given.
	ttl time.Duration
	// extending is the span of the extension that may be under way.
	extending *span
	// confirmed is the span of the last extension that a quorum confirmed.
	confirmed *span
	// extension is closed when the extension under way is decided; nil when
	// there is none.
	extension chan struct{}
	until     clock.Instant
	// decided is when the attempt was.
	decided clock.Instant
	// release is the round that ends the hold, once it is over.
	release releasing
}

// seat is what is known of the record on one node.
type seat struct {
	answer ballot.Answer
	// stored is the counter that the node is known to have at least.
	stored uint64
	// ours: the node may hold our record.
	ours bool
	// gone: asked to extend, the node said that it does not. missing: nor does it
	// hold another's.
	gone, missing bool
	// waiting: others were in the line there when the record was granted.
	waiting bool
	// busy: a step is under way. Only the goroutine that made it true may send
	// to the node, so that the node sees one step after the other.
	busy bool
	// asked: it is released by the round that ended the hold; due: as soon as the
	// step under way is over, by its goroutine.
	asked, due bool
}

// newHold returns the hold of an attempt that is made for claim and began at start.
func newHold(e *Engine, claim ballot.Claim, start clock.Instant) *Hold {
	h := &Hold{engine: e, claim: claim, ttl: claim.TTL}
	h.attempt.begin(e, start.Mono, e.timeout)
	if h.seats = h.single[:]; len(e.voters) != len(h.single) {
		h.seats = make([]seat, len(e.voters))
	}
	return h
}

// known is the claim with what is known by now. The caller holds h.mu.
func (h *Hold) known() ballot.Claim {
	claim := h.claim
	claim.TTL, claim.Token = h.ttl, h.token
	if h.kept {
		claim.Place = ballot.Place{}
	}
	return claim
}

// Token returns the attempt's fencing token, the first of its block.
func (h *Hold) Token() uint64 {
	return h.token - h.claim.More
}

// Successor returns a token for one more holder, who comes after all to whom the
// attempt has given one and wants the lock for ttl: the next of its block. There is none
// when the block is used up, when an attempt of the successor's own would have a
// validity that is longer by more than the drift, or another ttl, and when no quorum holds
// the record any more: an extension whose caller has left may have found that.
//
// A quorum stores the block's last token, so that every other attempt's tokens are
// larger than all of the block, or smaller.
func (h *Hold) Successor(ttl time.Duration) (token uint64, ok bool) {
	now := h.engine.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := now.Until(h.until) >= ttl-2*Drift(ttl)
	if h.over || h.unused == 0 || h.ttl != ttl || !fresh || h.extension != nil || h.impossible() {
		return 0, false
	}
	h.unused--
	return h.token - h.unused, true
}

// Leave ends the hold and leaves its records where they are, for somebody else
// to extend and to release by the holder id. ok is false when it was over
// before.
func (h *Hold) Leave() (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ok = !h.over
	h.over = true
	return ok
}

// Decided returns when the attempt was decided.
func (h *Hold) Decided() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decided
}

// Answer returns node i's last answer; Unknown without an error when none has
// come.
func (h *Hold) Answer(i int) ballot.Answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seats[i].answer
}

// ID returns the holder id.
func (h *Hold) ID() string {
	return h.claim.ID
}

// Until returns the end of the validity.
func (h *Hold) Until() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// Impossible reports that more nodes have said they hold no record of ours than
// a quorum can do without.
func (h *Hold) Impossible() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.impossible()
}

// impossible is Impossible. The caller holds h.mu.
func (h *Hold) impossible() bool {
	gone := 0
	for i := range h.seats {
		if h.seats[i].gone {
			gone++
		}
	}
	return gone > len(h.seats)-Majority(len(h.seats))
}

// acquireLane runs the acquire step on node i, whose seat is busy already.
func (h *Hold) acquireLane(ctx context.Context, i int) ballot.Answer {
	var a ballot.Answer // no reply, should a panic of ctx end the step
	defer func() {
		h.leave(i, func(s *seat) {
			s.answer = a
			s.stored, s.waiting = a.Token, a.Waiting
			// A node that may have executed the step may hold the record.
			s.ours = a.MayHold()
		})
	}()
	a = h.engine.voters[i].Acquire(ctx, at(i, h.claim))
	if a.Waiting || a.Called() {
		h.engine.waiting(h.claim.Record) // an answer that is too late for the attempt tells it too
	}
	return a
}

// at is claim as node i is to see it: only the node that keeps the line knows of
// the place in it.
func at(i int, claim ballot.Claim) ballot.Claim {
	if claim.Place.Waiter != "" && claim.Place.Voter != i {
		claim.Place, claim.PushIn = ballot.Place{}, true
	}
	return claim
}

// confirmLane runs the confirm step on node i. Its seat is not busy: the node
// has answered the acquire step.
func (h *Hold) confirmLane(i int, claim ballot.Claim, granted uint64) ballot.Answer {
	if !h.enter(i) {
		return ballot.Answer{Verdict: ballot.NotSent}
	}
	token := claim.Token
	a := h.engine.voters[i].Confirm(&h.attempt, claim, granted)
	h.leave(i, func(s *seat) {
		s.answer = a
		if a.Verdict == ballot.Granted {
			s.stored = token
		}
	})
	return a
}

// enter makes node i's seat busy, unless a step is under way there or the hold
// is over.
func (h *Hold) enter(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.seats[i].busy {
		return false
	}
	h.seats[i].busy = true
	return true
}

// leave ends the step under way on node i, after note took in its answer, and
// runs what was to follow it.
func (h *Hold) leave(i int, note func(*seat)) {
	h.mu.Lock()
	s := &h.seats[i]
	note(s)
	s.busy = false
	due := s.due
	s.due = false
	h.mu.Unlock()
	if due {
		h.freed(i)
	}
}

// keep ends a successful attempt. Steps that no answer has come to go on in the
// background.
func (h *Hold) keep(token uint64, now clock.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept, h.token, h.unused, h.decided = true, token, h.claim.More, now
}

// fail gives an attempt up, undoes it in the background, and returns the nodes'
// answers so far.
func (h *Hold) fail() []ballot.Answer {
	answers := make([]ballot.Answer, len(h.seats))
	h.mu.Lock()
	for i := range h.seats {
		answers[i] = h.seats[i].answer
	}
	h.mu.Unlock()
	h.giveUp(false)
	return answers
}
