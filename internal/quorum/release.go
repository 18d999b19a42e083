package quorum

import (
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/clock"
)

// Release deletes the records, and reports what each node said: Granted where
// one was deleted. It waits until a quorum has, or the rest could not make one,
// for a few steps' time at most; what is still under way then goes on in the
// background. It asks no ctx: a caller that has gone wants its lock released
// all the same. ok is false when the hold was given up before.
func (h *Hold) Release() (answers []ballot.Answer, ok bool) {
	r := &releasing{hold: h, votes: make(chan vote, len(h.seats))}
	if !r.start() {
		return nil, false
	}
	return r.collect(), true
}

// collect waits for the answers of a quorum that deleted, or of all.
func (r *releasing) collect() []ballot.Answer {
	answers := make([]ballot.Answer, len(r.hold.seats))
	for i := range answers {
		answers[i].Verdict = ballot.NotOurs
	}
	for _, i := range r.asked {
		answers[i].Verdict = ballot.Unknown
	}
	need, deleted, left := Majority(len(answers)), 0, len(r.asked)
	for deleted < need && left > 0 {
		v := <-r.votes
		answers[v.seat] = v.answer
		left--
		if v.answer.Verdict == ballot.Granted {
			deleted++
		}
	}
	return answers
}

// releasePatience is how many steps' time a release may take. Nobody works under
// the lock any more, and an answer that is late, on a busy machine, is better
// than none.
const releasePatience = 4

// releasing is the round that ends a hold.
type releasing struct {
	hold *Hold
	// votes, if wanted, gets one vote for each seat asked.
	votes chan vote
	asked []int

	round *span
	limit clock.Timer
	left  atomic.Int32
}

// start ends the hold, and releases every record that may be there: at once
// where no step is under way, else from the goroutine of the step, so that it
// comes after it. It reports false when the hold was over before.
func (r *releasing) start() bool {
	idle, ok := r.begin(r.lane)
	if !ok {
		return false
	}
	if len(r.asked) == 1 && len(idle) == 1 && r.votes != nil {
		r.lane(idle[0]) // nobody else to wait for
		return true
	}
	for _, i := range idle {
		r.hold.engine.crew.run(func() { r.lane(i) })
	}
	return true
}

// begin ends the hold, has then called for each seat where a step is under way when
// that is over, and returns the others that are to be released: those that a record
// may be on, and after a lock that was held those too that said there is none: a
// waiter may stand in line there.
func (r *releasing) begin(then func(i int)) (idle []int, ok bool) {
	h := r.hold
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return nil, false
	}
	h.over = true
	for i := range h.seats {
		s := &h.seats[i]
		if !s.busy && !s.ours && (r.votes == nil || !s.gone && s.answer.Verdict != ballot.Held) {
			continue
		}
		r.asked = append(r.asked, i)
		if s.busy {
			s.then = func() { then(i) }
		} else {
			idle = append(idle, i)
		}
	}
	r.left.Store(int32(len(r.asked)))
	if len(r.asked) > 0 {
		r.round = newSpan()
		r.limit = h.engine.clock.AfterFunc(releasePatience*h.engine.timeout, r.round.end)
	}
	underWay := []*span{h.acquiring, h.extending}
	h.mu.Unlock()

	if len(idle) < len(r.asked) {
		r.hurry(underWay)
	}
	return idle, true
}

// hurry tells the steps under way to wait no longer. After a lock that was held
// they get a moment first: their answers are likely to be on their way, and an
// abandoned command costs another to learn when it is over.
func (r *releasing) hurry(underWay []*span) {
	end := func() {
		for _, step := range underWay {
			if step != nil {
				step.end()
			}
		}
	}
	if r.votes == nil {
		end()
		return
	}
	r.hold.engine.clock.AfterFunc(r.hold.engine.timeout/10, end)
}

// lane releases the record on node i, if the step before it may have left one or
// somebody may wait there.
func (r *releasing) lane(i int) { r.done(i, r.release(i)) }

func (r *releasing) release(i int) ballot.Answer {
	h := r.hold
	h.mu.Lock()
	ours, stored, claim := h.seats[i].ours, h.seats[i].stored, h.claim
	h.mu.Unlock()
	if !ours && r.votes == nil {
		return ballot.Answer{Verdict: ballot.NotOurs}
	}
	if claim.Token == stored {
		claim.Token = 0 // nothing to repair
	}
	return h.engine.voters[i].Release(r.round, at(i, claim))
}

// done takes in what became of the record on node i.
func (r *releasing) done(i int, answer ballot.Answer) {
	if answer.Waiting {
		r.hold.engine.waiting(r.hold.claim.Record)
	}
	if r.votes != nil {
		r.votes <- vote{seat: i, answer: answer}
	}
	if r.left.Add(-1) == 0 {
		r.limit.Stop()
	}
}
