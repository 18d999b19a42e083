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
func (k *keys) Extend(ctx context.Context, ttl time.Duration) (Extension, []vote.Answer) {
	decided, ok := k.beginExtension(ctx)
	if decided == nil {
		if !ok {
			return Over, nil
		}
		return Missed, nil
	}
	defer k.endExtension(decided)

	e := k.engine
	// rule: extension-from-send
	start := e.clock.Now()
	if start.Reached(k.KeptUntil()) {
		return Lapsed, nil
	}
	round := new(roundContext)
	// It is left to ring: it ends the steps that the decision does not wait for.
	round.begin(e, start.Mono, e.timeout)
	k.mu.Lock()
	k.extending = round
	request := vote.Extend{Key: k.request.Key, ID: k.request.ID, TTL: ttl, Token: k.stored}
	k.ttl = max(k.ttl, ttl)
	k.mu.Unlock()
	votes := make(chan stepAnswer, len(e.voters))
	asked := 0
	for i := range e.voters {
		if k.enter(i) {
			asked++
			e.workers.run(func() {
				a := k.extendStep(round, i, request)
				votes <- stepAnswer{node: i, answer: a}
				k.repairStep(round, i, request)
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
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.over():
		return Over, answers
	// rule: extension-in-time
	case e.clock.Now().Reached(k.until):
		return Lapsed, answers
	}
	// rule: extend-never-shortens
	if k.until.Until(until) > 0 {
		k.until = until
	}
	k.confirmed = round
	for i := range k.nodes {
		if k.nodes[i].missing {
			e.workers.run(func() { k.repairStep(round, i, request) })
		}
	}
	return Extended, answers
}

// extendStep runs the extend step on node i, which is busy already.
func (k *keys) extendStep(round *roundContext, i int, request vote.Extend) vote.Answer {
	a := k.engine.voters[i].Extend(round, request)
	k.leave(i, func(s *nodeState) {
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
func (k *keys) repairStep(round *roundContext, i int, request vote.Extend) {
	k.mu.Lock()
	s := &k.nodes[i]
	// rule: repair-after-quorum
	due := k.confirmed == round && s.missing && !s.busy && !k.over() && !k.engine.clock.Now().Reached(k.until)
	if due {
		s.busy = true
	}
	k.mu.Unlock()
	if !due {
		return
	}
	own := new(roundContext)
	own.begin(k.engine, k.engine.clock.Mono(), k.engine.timeout)
	a := k.engine.voters[i].Repair(own, request)
	own.unlimit()
	k.leave(i, func(s *nodeState) {
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
func (k *keys) beginExtension(ctx context.Context) (decided chan struct{}, ok bool) {
	for {
		k.mu.Lock()
		if k.over() {
			k.mu.Unlock()
			return nil, false
		}
		current := k.extension
		if current == nil {
			k.extension = make(chan struct{})
			defer k.mu.Unlock()
			return k.extension, true
		}
		k.mu.Unlock()
		select {
		case <-current:
		case <-ctx.Done():
			return nil, true
		}
	}
}

func (k *keys) endExtension(decided chan struct{}) {
	k.mu.Lock()
	k.extension = nil
	k.mu.Unlock()
	close(decided)
}
