package quorum

import (
	"slices"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/vote"
)

// Release deletes the keys, and reports what each node said: Granted where
// one was deleted, or left to one who waits and was woken up. It waits until a quorum
// has answered so, or the rest could not make one, for a few steps' time at most;
// what is still under way then goes on in the background. It asks no ctx: a caller
// that has gone wants its lock released all the same. ok is false when the lease was
// given up before.
func (l *Lease) Release() (answers []vote.Answer, ok bool) {
	if transfers := l.engine.transfers; transfers != nil && len(l.nodes) > 1 && l.Transferable() {
		return transfers.release(l)
	}
	if !l.releaseEverywhere(released) {
		return nil, false
	}
	return l.collect(deleted), true
}

// collect waits until there are enough answers, or all.
func (k *keys) collect(enough func(answers []vote.Answer) bool) []vote.Answer {
	r := &k.release
	for left := r.asked; r.votes != nil && left > 0 && !enough(r.answers); left-- {
		v := <-r.votes
		r.answers[v.node] = v.answer
	}
	return r.answers
}

// deleted reports that a quorum has deleted the key.
func deleted(answers []vote.Answer) bool {
	return count(answers, vote.Granted) >= Majority(len(answers))
}

// count is how many answers have one of the verdicts.
func count(answers []vote.Answer, verdicts ...vote.Verdict) int {
	n := 0
	for _, a := range answers {
		if slices.Contains(verdicts, a.Verdict) {
			n++
		}
	}
	return n
}

// releasePatience is how many steps' time a release may take. Nobody works under
// the lock any more, and an answer that is late, on a busy machine, is better
// than none.
const releasePatience = 4

// releasing is the round that ends a lease.
type releasing struct {
	// wanted: somebody waits for the answers.
	wanted bool
	// left is how many of the nodes that are to be released are not yet, and asked how
	// many they were.
	left  atomic.Int32
	asked int
	// round is begun if any are.
	round roundContext
	// votes gets one vote for each node asked, if wanted; nil where the caller's own
	// goroutine does the release, and notes its answer.
	votes chan stepAnswer
	// answers belongs to who wants them. single is room for one.
	answers []vote.Answer
	single  [1]vote.Answer
	// freed, if any, is called in place of the release, for a node whose step was
	// under way and is over.
	freed func(i int)
}

// giveUp ends an attempt that failed, and releases in the background.
func (k *keys) giveUp() { k.first.releaseEverywhere(failed) }

// releaseEverywhere ends the lease, and releases every key that may be there: at once
// where no step is under way, else from the goroutine of the step, so that it
// comes after it. It reports false when the lease was over before.
func (l *Lease) releaseEverywhere(next state) bool {
	var room [8]int
	idle, ok := l.end(next, room[:0], nil)
	if !ok {
		return false
	}
	if r := &l.release; r.wanted && r.votes == nil && len(idle) > 0 {
		r.answers[idle[0]] = l.releaseStep(idle[0])
		return true
	}
	l.releaseAll(idle)
	return true
}

// releaseAll releases the keys on idle nodes, in the background.
func (k *keys) releaseAll(idle []int) {
	for _, i := range idle {
		k.engine.workers.run(func() { k.releaseStep(i) })
	}
}

// end ends the lease, has freed called, or by default the release done, for each
// node where a step is under way when that is over, and appends the others that are
// to be released to idle: those that a key may be on, and after a lock that was
// held those too that said there is none: a waiter may be queued there.
func (l *Lease) end(next state, idle []int, freed func(i int)) ([]int, bool) {
	l.mu.Lock()
	if l.state.over() {
		l.mu.Unlock()
		return nil, false
	}
	l.become(next, nil)
	wanted := next != failed
	r := &l.release
	r.wanted, r.freed = wanted, freed
	if wanted {
		if r.answers = r.single[:]; len(l.nodes) != len(r.single) {
			r.answers = make([]vote.Answer, len(l.nodes))
		}
	}
	for i := range l.nodes {
		s := &l.nodes[i]
		s.asked = s.busy || s.ours || wanted && (s.gone || s.answer.Verdict == vote.Held)
		switch {
		case s.asked:
			r.asked++
			// rule: release-follows-step
			if s.due = s.busy; !s.due {
				idle = append(idle, i)
			}
		case wanted:
			r.answers[i].Verdict = vote.NotOurs
		}
	}
	r.left.Store(int32(r.asked))
	// With one to ask there is nobody else to wait for.
	if alone := r.asked == 1 && len(idle) == 1 && freed == nil; wanted && r.asked > 0 && !alone {
		r.votes = make(chan stepAnswer, r.asked)
	}
	if r.asked > 0 {
		r.round.begin(l.engine, l.engine.clock.Mono(), releasePatience*l.engine.timeout)
	}
	extending := l.extending
	l.mu.Unlock()

	if len(idle) < r.asked {
		l.abandonSteps(extending)
	}
	return idle, true
}

// abandonSteps tells the steps under way to wait no longer. After a lock that was held, and of an
// attempt that was to follow one, they get a moment first: their answers are likely to be on
// their way, what they say is missed, and an abandoned command costs another to learn when it is
// over. An extension that is made together with those of others gets a step's time.
func (k *keys) abandonSteps(extending *roundContext) {
	end := func() {
		k.attempt.end()
		if extending != nil {
			extending.end()
		}
	}
	if !k.release.wanted && k.request.From == "" {
		end()
		return
	}
	moment := k.engine.timeout / 10
	if extending != nil && extending.shared {
		moment = k.engine.timeout
	}
	k.engine.clock.AfterFunc(moment, end)
}

// freed goes on with the release of node i, where the step under way is over.
func (k *keys) freed(i int) {
	if k.release.freed != nil {
		k.release.freed(i)
		return
	}
	k.releaseStep(i)
}

// releaseStep releases the key on node i, if the step before it may have left
// one or somebody may wait there.
func (k *keys) releaseStep(i int) vote.Answer {
	a := k.releaseOn(i)
	k.released(i, a)
	return a
}

func (k *keys) releaseOn(i int) vote.Answer {
	request, ours := k.releasable(i)
	if !ours && !k.release.wanted {
		return vote.Answer{Verdict: vote.NotOurs}
	}
	return k.engine.voters[i].Release(&k.release.round, request)
}

// releasable is what node i is asked to release; ours, that it may have the key.
func (k *keys) releasable(i int) (request vote.Release, ours bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	node := &k.nodes[i]
	request = vote.Release{
		Key: k.request.Key, With: k.request.With, ID: k.request.ID, TTL: k.ttl,
		// The waiter that is woken up may come to another node before the release does.
		Transfer: k.engine.transfers != nil && k.release.wanted && len(k.nodes) > 1 && k.Transferable(),
		Queued:   node.waiting, Shared: k.request.Shared, Made: k.request.Made,
	}
	if k.stored > node.stored {
		request.Token = k.stored // else there is nothing to repair
	}
	if ticket := k.request.Ticket; k.holder.state == failed && ticket.Waiter != "" && ticket.Node == i {
		request.Ticket = ticket
	}
	return request, node.ours
}

// released takes in what became of the key on node i.
func (k *keys) released(i int, answer vote.Answer) {
	r := &k.release
	if answer.Waiting {
		k.engine.waiting(k.request.Key)
	}
	if r.votes != nil {
		r.votes <- stepAnswer{node: i, answer: answer}
	}
	if r.left.Add(-1) == 0 {
		r.round.unlimit()
	}
}
