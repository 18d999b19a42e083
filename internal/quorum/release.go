package quorum

import (
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/ballot"
)

// Release deletes the records, and reports what each node said: Granted where
// one was deleted, or left to one who waits and was called. It waits until a quorum
// has answered so, or the rest could not make one, for a few steps' time at most;
// what is still under way then goes on in the background. It asks no ctx: a caller
// that has gone wants its lock released all the same. ok is false when the hold was
// given up before.
func (h *Hold) Release() (answers []ballot.Answer, ok bool) {
	if keeper := h.keeper(); keeper >= 0 {
		ok = h.handOn(keeper)
	} else {
		ok = h.giveUp(true)
	}
	if !ok {
		return nil, false
	}
	return h.collect(), true
}

// collect waits for the answers of a quorum that deleted, or of all. Whoever was
// called may have taken over what is not there any more.
func (h *Hold) collect() []ballot.Answer {
	r := &h.release
	if r.votes == nil {
		return r.answers
	}
	need, deleted, gone, left := Majority(len(r.answers)), 0, 0, r.asked
	called := r.offered
	for deleted < need && !(called && deleted+gone >= need) && left > 0 {
		v := <-r.votes
		r.answers[v.seat] = v.answer
		left--
		switch v.answer.Verdict {
		case ballot.Granted:
			deleted++
		case ballot.NotOurs, ballot.Held:
			gone++
		}
		called = called || v.answer.Waiting
	}
	for i := range r.answers {
		if a := &r.answers[i]; called && (a.Verdict == ballot.NotOurs || a.Verdict == ballot.Held) {
			a.Verdict = ballot.Granted
		}
	}
	return r.answers
}

// releasePatience is how many steps' time a release may take. Nobody works under
// the lock any more, and an answer that is late, on a busy machine, is better
// than none.
const releasePatience = 4

// releasing is the round that ends a hold.
type releasing struct {
	// wanted: somebody waits for the answers.
	wanted bool
	// offered: the node that keeps the line may have called somebody, and has not said
	// so.
	offered bool
	// left is how many of the seats that are to be released are not yet, and asked how
	// many they were.
	left  atomic.Int32
	asked int
	// round is begun if any are.
	round span
	// votes gets one vote for each seat asked, if wanted; nil where the caller's own
	// goroutine does the release, and notes its answer.
	votes chan vote
	// answers belongs to who wants them. single is room for one.
	answers []ballot.Answer
	single  [1]ballot.Answer
	// freed, if any, is called in place of the release, for a seat whose step was
	// under way and is over.
	freed func(i int)
}

// giveUp ends the hold, and releases every record that may be there: at once
// where no step is under way, else from the goroutine of the step, so that it
// comes after it. It reports false when the hold was over before.
func (h *Hold) giveUp(wanted bool) bool {
	var room [8]int
	idle, ok := h.finish(room[:0], wanted, nil)
	if !ok {
		return false
	}
	if r := &h.release; wanted && r.votes == nil && len(idle) > 0 {
		r.answers[idle[0]] = h.releaseLane(idle[0])
		return true
	}
	h.releaseAll(idle)
	return true
}

// releaseAll releases the records on idle seats, in the background.
func (h *Hold) releaseAll(idle []int) {
	for _, i := range idle {
		h.engine.crew.run(func() { h.releaseLane(i) })
	}
}

// finish ends the hold, has freed called, or by default the release done, for each
// seat where a step is under way when that is over, and appends the others that are
// to be released to idle: those that a record may be on, and after a lock that was
// held those too that said there is none: a waiter may stand in line there.
func (h *Hold) finish(idle []int, wanted bool, freed func(i int)) ([]int, bool) {
	h.mu.Lock()
	if h.over {
		h.mu.Unlock()
		return nil, false
	}
	h.over = true
	r := &h.release
	r.wanted, r.freed = wanted, freed
	if wanted {
		if r.answers = r.single[:]; len(h.seats) != len(r.single) {
			r.answers = make([]ballot.Answer, len(h.seats))
		}
	}
	for i := range h.seats {
		s := &h.seats[i]
		s.asked = s.busy || s.ours || wanted && (s.gone || s.answer.Verdict == ballot.Held)
		switch {
		case s.asked:
			r.asked++
			if s.due = s.busy; !s.due {
				idle = append(idle, i)
			}
		case wanted:
			r.answers[i].Verdict = ballot.NotOurs
		}
	}
	r.left.Store(int32(r.asked))
	// With one to ask there is nobody else to wait for.
	if alone := r.asked == 1 && len(idle) == 1 && freed == nil; wanted && r.asked > 0 && !alone {
		r.votes = make(chan vote, r.asked)
	}
	if r.asked > 0 {
		r.round.begin(h.engine, h.engine.clock.Mono(), releasePatience*h.engine.timeout)
	}
	extending := h.extending
	h.mu.Unlock()

	if len(idle) < r.asked {
		h.hurry(extending)
	}
	return idle, true
}

// hurry tells the steps under way to wait no longer. After a lock that was held, and of an
// attempt to which one was handed over, they get a moment first: their answers are likely to
// be on their way, what they say is missed, and an abandoned command costs another to learn
// when it is over.
func (h *Hold) hurry(extending *span) {
	end := func() {
		h.attempt.end()
		if extending != nil {
			extending.end()
		}
	}
	if !h.release.wanted && h.claim.From == "" {
		end()
		return
	}
	h.engine.clock.AfterFunc(h.engine.timeout/10, end)
}

// freed goes on with the release of node i, where the step under way is over.
func (h *Hold) freed(i int) {
	if h.release.freed != nil {
		h.release.freed(i)
		return
	}
	h.releaseLane(i)
}

// releaseLane releases the record on node i, if the step before it may have left
// one or somebody may wait there.
func (h *Hold) releaseLane(i int) ballot.Answer {
	a := h.releaseOn(i)
	h.released(i, a)
	return a
}

func (h *Hold) releaseOn(i int) ballot.Answer {
	claim, ours := h.releasable(i)
	if !ours && !h.release.wanted {
		return ballot.Answer{Verdict: ballot.NotOurs}
	}
	return h.engine.voters[i].Release(&h.release.round, claim)
}

// releasable is what node i is asked to release; ours, that it may have the record.
func (h *Hold) releasable(i int) (claim ballot.Claim, ours bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	claim = at(i, h.known())
	if claim.Token <= h.seats[i].stored {
		claim.Token = 0 // nothing to repair
	}
	// Whoever is called may come to a node before the release does.
	claim.HandOn = h.release.wanted && len(h.seats) > 1
	claim.Queued = h.seats[i].waiting
	return claim, h.seats[i].ours
}

// released takes in what became of the record on node i.
func (h *Hold) released(i int, answer ballot.Answer) {
	r := &h.release
	if answer.Waiting {
		h.engine.waiting(h.claim.Record)
	}
	if r.votes != nil {
		r.votes <- vote{seat: i, answer: answer}
	}
	if r.left.Add(-1) == 0 {
		r.round.unlimit()
	}
}
