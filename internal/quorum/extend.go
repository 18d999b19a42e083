package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// Extension says how an extension ended.
type Extension uint8

// The ends of an extension.
const (
	// Extended: a quorum said yes before the validity ran out.
	Extended Extension = iota
	// Missed: no quorum said yes. The validity is what it was.
	Missed
	// Lapsed: the validity had run out, before the round began or before a quorum said yes. Keys
	// that were extended all the same are not relied on.
	Lapsed
	// Over: the lease was over before, or ended meanwhile.
	Over
	// Overlong: when the round would have begun, the lease had been held for as long as Limit
	// allows. The validity is what it was.
	Overlong
	// Busy: another extension of the lease was under way, and this one asked no node.
	Busy
)

// Extend makes one round that prolongs the keys to ttl from now. It never shortens the validity.
// One round runs at a time: a further caller waits until that one is decided, or for ctx. When ctx
// ends first Extend says Missed, and the round goes on without its caller. To end it would gain
// nothing, since a node is asked for no other step before it has answered this one; and callers that
// leave early, one after the other, would keep the lock from being extended at all.
//
// A node that lost its key is given it back after a quorum has said yes, and only while the validity
// runs: a lapsed lock is never resurrected.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) (Extension, []vote.Answer) {
	done := ctx.Done() // read before there is a turn: ctx may be the caller's own type, and panic
	if end, ok := l.beginExtension(done); !ok {
		return end, nil
	}
	k := l.keys
	e := k.engine
	// rule: extension-from-send
	start := e.clock.Now()
	if end, late := k.late(start); late {
		k.endExtension()
		return end, nil
	}
	round := new(roundContext)
	// The alarm stays set: it ends the steps that the decision does not wait for.
	round.begin(e, start.Mono, e.timeout)
	x := k.newExtension(round, start, ttl)
	votes := make(chan stepAnswer, len(e.voters))
	for i := range e.voters {
		if x.enter(i) {
			e.workers.run(func() {
				a := e.voters[i].Extend(round, x.request)
				k.extended(i, a)
				votes <- stepAnswer{node: i, answer: a}
				k.repairStep(round, i, x.request)
			})
		}
	}
	for !x.decided() {
		select {
		case v := <-votes:
			x.answered(v.node, v.answer)
		case <-done:
			answers := slices.Clone(x.answers)
			e.workers.run(func() {
				for !x.decided() {
					v := <-votes
					x.answered(v.node, v.answer)
				}
				x.end()
				k.endExtension()
			})
			return Missed, answers
		}
	}
	defer k.endExtension()
	return x.end(), x.answers
}

// beginExtension waits for the turn to extend, or until done is closed. If ok is false there is no
// turn, and end is how the extension ends.
func (l *Lease) beginExtension(done <-chan struct{}) (end Extension, ok bool) {
	for {
		before, over := l.turn()
		switch {
		case over:
			return Over, false
		case before == nil:
			return Extended, true
		}
		select {
		case <-before:
		case <-done:
			return Missed, false
		}
	}
}

// turn takes the turn to extend, which lasts until endExtension. If another round has the turn, before
// is closed when that one is decided. over reports that the lease is over: its keys may be another
// lease's, which is not to be extended unasked.
func (l *Lease) turn() (before <-chan struct{}, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over = l.state.over(); over || l.underWay != nil {
		return l.underWay, over
	}
	l.underWay = make(chan struct{})
	return nil, false
}

// endExtension lets the next extension begin.
func (k *keys) endExtension() {
	k.mu.Lock()
	close(k.underWay)
	k.underWay = nil
	k.mu.Unlock()
}

// late reports whether it is too late for an extension to begin at start, and how it ends instead.
func (k *keys) late(start clock.Instant) (end Extension, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch l := k.holder; {
	case start.Reached(k.until):
		return Lapsed, true
	case l.limit > 0 && start.Since(l.since) >= l.limit:
		return Overlong, true
	}
	return Extended, false
}

// extension is a round that extends one lease.
type extension struct {
	keys *keys
	// round is its context, and start is when it began.
	round   *roundContext
	start   clock.Instant
	request vote.Extend
	// unanswered is how many nodes have yet to answer, and yes is how many have extended the key.
	unanswered, yes int
	answers         []vote.Answer
}

// newExtension begins an extension, in which no node has been asked yet. From here on a release ends
// round, unless other leases share it, and takes it that the nodes may keep the keys for ttl.
func (k *keys) newExtension(round *roundContext, start clock.Instant, ttl time.Duration) extension {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.extending, k.ttl = round, max(k.ttl, ttl)
	return extension{
		keys: k, round: round, start: start, answers: make([]vote.Answer, len(k.nodes)),
		request: vote.Extend{Key: k.request.Key, With: k.request.With, ID: k.request.ID, TTL: ttl, Token: k.stored, Shared: k.request.Shared},
	}
}

// enter makes node i busy, and expects an answer from it. It reports false, and does neither, where
// another step is under way there or the lease is over.
func (x *extension) enter(i int) bool {
	if !x.keys.enter(i, x.round.shared) {
		return false
	}
	x.unanswered++
	return true
}

func (x *extension) answered(i int, a vote.Answer) {
	x.unanswered--
	x.answers[i] = a
	if a.Verdict == vote.Granted {
		x.yes++
	}
}

// decided reports whether no answer that is still to come can change the end.
func (x *extension) decided() bool {
	// rule: configured-nodes
	// rule: answers-of-one-round
	need := Majority(len(x.answers))
	return x.yes >= need || x.yes+x.unanswered < need
}

// end ends a round that is decided. If a quorum said yes in time, it moves the end of the validity, and
// begins to repair the nodes that have lost the key.
func (x *extension) end() Extension {
	k := x.keys
	if x.yes < Majority(len(x.answers)) {
		return Missed
	}
	until := x.start.Add(x.request.TTL - Drift(x.request.TTL))
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over():
		return Over
	// rule: extension-in-time
	case k.engine.clock.Now().Reached(k.until):
		return Lapsed
	}
	// rule: extend-never-shortens
	if k.until.Until(until) > 0 {
		k.until = until
	}
	k.lastExtended = x.round
	for i := range k.nodes {
		if k.nodes[i].key.toRepair() {
			k.engine.workers.run(func() { k.repairStep(x.round, i, x.request) })
		}
	}
	return Extended
}

// extended takes in node i's answer to the extend step.
func (k *keys) extended(i int, a vote.Answer) {
	k.leave(i, func(s *nodeState) {
		s.answer = a
		switch a.Verdict {
		case vote.Granted:
			s.key = ours
		case vote.NotOurs:
			s.key = missing
		case vote.Held:
			s.key = replaced
		}
	})
}

// repairStep gives the key back to node i if a quorum has said yes to round and the validity still
// runs. It is called once after the node's answer and once after the decision; whichever call comes
// second takes effect.
func (k *keys) repairStep(round *roundContext, i int, request vote.Extend) {
	k.mu.Lock()
	s := &k.nodes[i]
	// rule: repair-after-quorum
	due := k.lastExtended == round && s.key.toRepair() && !s.busy && !k.over() && !k.engine.clock.Now().Reached(k.until)
	if due {
		s.busy, s.key = true, repaired
	}
	k.mu.Unlock()
	if !due {
		return
	}
	own := new(roundContext) // round may be nearly over: its time runs from before the extend steps
	own.begin(k.engine, k.engine.clock.Mono(), k.engine.timeout)
	a := k.engine.voters[i].Repair(own, request)
	own.unlimit()
	k.leave(i, func(s *nodeState) {
		switch {
		case a.Verdict == vote.Granted:
			s.key = ours
		case !a.MayHold(): // otherwise the next round finds out
			s.key = missing
		}
	})
}

// Renewer extends leases together: NewRenewals.
type Renewer interface {
	// Renew extends the lease by ttl, and calls ended when that is decided. Neither may block.
	Renew(l *Lease, ttl time.Duration, ended func(Extension, []vote.Answer))
	// Add and Remove count a lease; each is the time from one renewal of it to the next.
	Add(each time.Duration)
	Remove(each time.Duration)
	// Overloaded reports whether one lease more could not be renewed in time.
	Overloaded() bool
}
