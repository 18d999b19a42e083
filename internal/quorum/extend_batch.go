package quorum

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// BatchVoter is a Voter that can extend several keys by one command, with an answer for each key.
type BatchVoter interface {
	Voter
	ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer
}

// Renewal is the extension of one lease, made together with others.
type Renewal struct {
	Lease *Lease
	TTL   time.Duration
	// End and Answers are what Lease.Extend returns.
	End     Extension
	Answers []vote.Answer
}

// ExtendBatch is Lease.Extend for several leases, whose nodes are all BatchVoters. It returns when
// all of them are decided: after limit at the latest, or after a step's time if that is longer. A
// lease that is being extended already is Missed.
func (e *Engine) ExtendBatch(batch []Renewal, limit time.Duration) {
	// rule: extension-from-send
	start := e.clock.Now()
	round := &roundContext{shared: true}
	round.begin(e, start.Mono, max(limit, e.timeout))
	over := make(chan struct{})
	defer close(over)
	open, left := make([]*extension, len(batch)), 0
	for i := range batch {
		r := &batch[i]
		k := r.Lease.keys
		before, gone := k.turn(over)
		end, late := k.late(start)
		switch {
		case gone:
			r.End = Over
		case before != nil:
			r.End = Missed
		case late:
			r.End = end
			k.endExtension()
		default:
			x := k.extend(round, start, r.TTL)
			open[i] = &x
			left++
		}
	}
	votes := make(chan batchAnswer, len(e.voters))
	for n := range e.voters {
		e.extendOn(n, round, open, votes)
	}
	for {
		for i, x := range open {
			if x != nil && x.decided() {
				batch[i].End, batch[i].Answers = x.end(), x.answers
				x.keys.endExtension()
				open[i] = nil
				left--
			}
		}
		if left == 0 {
			return
		}
		v := <-votes
		for j, i := range v.asked {
			if open[i] != nil {
				open[i].answered(v.node, v.answers[j])
			}
		}
	}
}

// batchAnswer is a node's answers to those extensions of a batch that it was asked for.
type batchAnswer struct {
	node    int
	asked   []int
	answers []vote.Answer
}

// extendOn asks node n for those extensions of a batch whose keys have no other step under way
// there.
func (e *Engine) extendOn(n int, round *roundContext, open []*extension, votes chan<- batchAnswer) {
	asked, keys, requests := make([]int, 0, len(open)), make([]*keys, 0, len(open)), make([]vote.Extend, 0, len(open))
	for i, x := range open {
		if x != nil && x.ask(n) {
			asked, keys, requests = append(asked, i), append(keys, x.keys), append(requests, x.request)
		}
	}
	if len(asked) == 0 {
		return
	}
	e.workers.run(func() {
		answers := e.voters[n].(BatchVoter).ExtendBatch(round, requests)
		for j, k := range keys {
			k.extended(n, answers[j])
		}
		votes <- batchAnswer{n, asked, answers}
		for j, k := range keys {
			if answers[j].Verdict == vote.NotOurs {
				e.workers.run(func() { k.repairStep(round, n, requests[j]) })
			}
		}
	})
}
