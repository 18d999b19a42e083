package quorum

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
)

// Extension says how an extension ended.
type Extension uint8

// The ends of an extension.
const (
	// Extended: a quorum said yes before the validity ran out.
	Extended Extension = iota
	// Missed: no quorum said yes. The validity is what it was.
	Missed
	// Lapsed: the validity had run out, before the round or before its quorum.
	// What was extended all the same is not relied on.
	Lapsed
	// Over: the hold was given up.
	Over
)

// Extend makes one round that prolongs the records to ttl from now. It never
// shortens the validity. One round runs at a time; a further caller waits for
// it, or for ctx. When ctx ends first the round is Missed, and may have extended
// records.
//
// A node that lost its record is given it back once a quorum has confirmed, and
// not when the validity has run out: a lapsed lock is never resurrected.
func (h *Hold) Extend(ctx context.Context, ttl time.Duration) (Extension, []ballot.Answer) {
	decided, ok := h.beginExtension(ctx)
	if decided == nil {
		if !ok {
			return Over, nil
		}
		return Missed, nil
	}
	defer h.endExtension(decided)

	e := h.engine
	start := e.clock.Now()
	if start.Reached(h.Until()) {
		return Lapsed, nil
	}
	round := new(span)
	// It is left to ring: it ends the steps that the decision does not wait for.
	round.begin(e, start.Mono, e.timeout)
	h.mu.Lock()
	h.extending = round
	claim := h.known()
	h.ttl = max(h.ttl, ttl)
	h.mu.Unlock()
	claim.TTL = ttl
	votes := make(chan vote, len(e.voters))
	asked := 0
	for i := range e.voters {
		if h.enter(i) {
			asked++
			e.crew.run(func() {
				a := h.extendLane(round, i, claim)
				votes <- vote{seat: i, answer: a}
				h.repairLane(round, i, claim)
			})
		}
	}

	answers := make([]ballot.Answer, len(e.voters))
	need, yes := Majority(len(e.voters)), 0
	for yes < need && yes+asked >= need {
		select {
		case v := <-votes:
			asked--
			answers[v.seat] = v.answer
			if v.answer.Verdict == ballot.Granted {
				yes++
			}
		case <-ctx.Done():
			return Missed, answers
		}
	}
	if yes < need {
		return Missed, answers
	}
	until := start.Add(ttl - Drift(ttl))
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over:
		return Over, answers
	case e.clock.Now().Reached(h.until):
		return Lapsed, answers
	}
	if h.until.Until(until) > 0 {
		h.until = until
	}
	h.confirmed = round
	for i := range h.seats {
		if h.seats[i].missing {
			e.crew.run(func() { h.repairLane(round, i, claim) })
		}
	}
	return Extended, answers
}

// extendLane runs the extend step on node i, whose seat is busy already.
func (h *Hold) extendLane(round *span, i int, claim ballot.Claim) ballot.Answer {
	a := h.engine.voters[i].Extend(round, claim)
	h.leave(i, func(s *seat) {
		s.answer = a
		switch a.Verdict {
		case ballot.Granted:
			s.ours, s.gone, s.missing = true, false, false
		case ballot.NotOurs, ballot.Held:
			s.ours, s.gone, s.missing = false, true, a.Verdict == ballot.NotOurs
		}
	})
	return a
}

// repairLane gives the record back to node i if round was confirmed and the
// validity still runs. Whichever of the node's answer and the decision comes
// second calls it to effect.
func (h *Hold) repairLane(round *span, i int, claim ballot.Claim) {
	h.mu.Lock()
	s := &h.seats[i]
	due := h.confirmed == round && s.missing && !s.busy && !h.over && !h.engine.clock.Now().Reached(h.until)
	if due {
		s.busy = true
	}
	h.mu.Unlock()
	if !due {
		return
	}
	own := new(span)
	own.begin(h.engine, h.engine.clock.Mono(), h.engine.timeout)
	a := h.engine.voters[i].Repair(own, claim)
	own.unlimit()
	h.leave(i, func(s *seat) {
		s.ours = a.MayHold()
		if s.ours {
			s.gone = false // where no answer came, the next round tells
		}
		if a.Verdict == ballot.Granted {
			s.missing = false
		}
	})
}

// beginExtension waits for its turn. decided is nil when ctx ended first (ok) or
// the hold is over (not ok).
func (h *Hold) beginExtension(ctx context.Context) (decided chan struct{}, ok bool) {
	for {
		h.mu.Lock()
		if h.over {
			h.mu.Unlock()
			return nil, false
		}
		current := h.extension
		if current == nil {
			h.extension = make(chan struct{})
			defer h.mu.Unlock()
			return h.extension, true
		}
		h.mu.Unlock()
		select {
		case <-current:
		case <-ctx.Done():
			return nil, true
		}
	}
}

func (h *Hold) endExtension(decided chan struct{}) {
	h.mu.Lock()
	h.extension = nil
	h.mu.Unlock()
	close(decided)
}
