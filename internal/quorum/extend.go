package quorum

import (
	"context"
	"time"

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
	// Lapsed: the validity had run out, before the round or before its quorum.
	// What was extended all the same is not relied on.
	Lapsed
	// Over: the lease was given up.
	Over
)

// Extend makes one round that prolongs the keys to ttl from now. It never
// shortens the validity. One round runs at a time; a further caller waits for
// it, or for ctx. When ctx ends first the round is Missed, and may have extended
// keys.
//
// A node that lost its key is given it back once a quorum has confirmed, and
// not when the validity has run out: a lapsed lock is never resurrected.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) (Extension, []vote.Answer) {
	decided, ok := l.beginExtension(ctx)
	if decided == nil {
		if !ok {
			return Over, nil
		}
		return Missed, nil
	}
	defer l.endExtension(decided)

	e := l.engine
	// rule: extension-from-send
	start := e.clock.Now()
	if start.Reached(l.Until()) {
		return Lapsed, nil
	}
	round := new(roundContext)
	// It is left to ring: it ends the steps that the decision does not wait for.
	round.begin(e, start.Mono, e.timeout)
	l.mu.Lock()
	l.extending = round
	request := vote.Extend{Key: l.request.Key, ID: l.request.ID, TTL: ttl, Token: l.token}
	l.ttl = max(l.ttl, ttl)
	l.mu.Unlock()
	votes := make(chan stepAnswer, len(e.voters))
	asked := 0
	for i := range e.voters {
		if l.enter(i) {
			asked++
			e.workers.run(func() {
				a := l.extendStep(round, i, request)
				votes <- stepAnswer{node: i, answer: a}
				l.repairStep(round, i, request)
			})
		}
	}

	answers := make([]vote.Answer, len(e.voters))
	// rule: configured-nodes
	// rule: answers-of-one-round
	need, yes := Majority(len(e.voters)), 0
	for yes < need && yes+asked >= need {
		select {
		case v := <-votes:
			asked--
			answers[v.node] = v.answer
			if v.answer.Verdict == vote.Granted {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over():
		return Over, answers
	// rule: extension-in-time
	case e.clock.Now().Reached(l.until):
		return Lapsed, answers
	}
	// rule: extend-never-shortens
	if l.until.Until(until) > 0 {
		l.until = until
	}
	l.confirmed = round
	for i := range l.nodes {
		if l.nodes[i].missing {
			e.workers.run(func() { l.repairStep(round, i, request) })
		}
	}
	return Extended, answers
}

// extendStep runs the extend step on node i, which is busy already.
func (l *Lease) extendStep(round *roundContext, i int, request vote.Extend) vote.Answer {
	a := l.engine.voters[i].Extend(round, request)
	l.leave(i, func(s *nodeState) {
		s.answer = a
		switch a.Verdict {
		case vote.Granted:
			s.ours, s.gone, s.missing = true, false, false
		case vote.NotOurs, vote.Held:
			s.ours, s.gone, s.missing = false, true, a.Verdict == vote.NotOurs
		}
	})
	return a
}

// repairStep gives the key back to node i if round was confirmed and the
// validity still runs. Whichever of the node's answer and the decision comes
// second calls it to effect.
func (l *Lease) repairStep(round *roundContext, i int, request vote.Extend) {
	l.mu.Lock()
	s := &l.nodes[i]
	// rule: repair-after-quorum
	due := l.confirmed == round && s.missing && !s.busy && !l.over() && !l.engine.clock.Now().Reached(l.until)
	if due {
		s.busy = true
	}
	l.mu.Unlock()
	if !due {
		return
	}
	own := new(roundContext)
	own.begin(l.engine, l.engine.clock.Mono(), l.engine.timeout)
	a := l.engine.voters[i].Repair(own, request)
	own.unlimit()
	l.leave(i, func(s *nodeState) {
		s.ours = a.MayHold()
		if s.ours {
			s.gone = false // where no answer came, the next round tells
		}
		if a.Verdict == vote.Granted {
			s.missing = false
		}
	})
}

// beginExtension waits for its turn. decided is nil when ctx ended first (ok) or
// the lease is over (not ok).
func (l *Lease) beginExtension(ctx context.Context) (decided chan struct{}, ok bool) {
	for {
		l.mu.Lock()
		if l.over() {
			l.mu.Unlock()
			return nil, false
		}
		current := l.extension
		if current == nil {
			l.extension = make(chan struct{})
			defer l.mu.Unlock()
			return l.extension, true
		}
		l.mu.Unlock()
		select {
		case <-current:
		case <-ctx.Done():
			return nil, true
		}
	}
}

func (l *Lease) endExtension(decided chan struct{}) {
	l.mu.Lock()
	l.extension = nil
	l.mu.Unlock()
	close(decided)
}
