package quorum

import (
	"slices"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/vote"
)

// Release deletes the keys and reports each node's answer: Granted where a key was deleted, or was
// left to a waiter that was woken up. It waits until a quorum has answered so or all have answered,
// for a few steps' time at most; what is still under way then goes on in the background. It takes
// no ctx: a caller that has gone wants its lock released all the same. ok is false when the lease
// was over before.
func (l *Lease) Release() (answers []vote.Answer, ok bool) {
	if l.mayLeave() {
		return l.engine.transfers.release(l)
	}
	if !l.endAndRelease(released) {
		return nil, false
	}
	return l.collect(deleted), true
}

// collect waits until there are enough answers, or all of them, and returns those that have come.
func (k *keys) collect(enough func(answers []vote.Answer) bool) []vote.Answer {
	r := &k.ending
	for left := r.asked; r.votes != nil && left > 0 && !enough(r.answers); left-- {
		v := <-r.votes
		r.answers[v.node] = v.answer
	}
	return r.answers
}

// deleted reports whether a quorum has deleted the key.
func deleted(answers []vote.Answer) bool {
	return Count(answers, vote.Granted) >= Majority(len(answers))
}

// Count returns how many answers have one of the verdicts.
func Count(answers []vote.Answer, verdicts ...vote.Verdict) int {
	n := 0
	for _, a := range answers {
		if slices.Contains(verdicts, a.Verdict) {
			n++
		}
	}
	return n
}

// releasePatience is how many steps' time a release may take. Nobody works under the lock any more,
// and on a busy machine a late answer is better than none.
const releasePatience = 4

// ending is the round that ends a lease.
type ending struct {
	// wanted: the lease was held, so its holder wants the answers, and a waiter may be queued on a node
	// that has no key.
	wanted bool
	// left is how many of the nodes to be released are not released yet, and asked is how many
	// there were.
	left  atomic.Int32
	asked int
	// round is begun if a node is asked.
	round roundContext
	// votes gets one answer for each node asked, if wanted. It is nil where the caller's own
	// goroutine does the release and notes its answer.
	votes chan stepAnswer
	// answers belongs to the caller that wants them. single is its room for one.
	answers []vote.Answer
	single  [1]vote.Answer
	// instead, if set, is called in place of the release for a node where a step was under way, as soon
	// as that is over.
	instead func(i int)
}

// giveUp ends an attempt that failed, and releases its keys in the background.
func (k *keys) giveUp() { k.first.endAndRelease(failed) }

// endAndRelease ends the lease and releases every key that may be there: at once where no step
// is under way, else from the goroutine of that step, after it. It reports false when the lease was
// over before.
func (l *Lease) endAndRelease(next state) bool {
	idle, ok := l.end(next, nil)
	if !ok {
		return false
	}
	if r := &l.ending; r.wanted && r.votes == nil && len(idle) > 0 {
		r.answers[idle[0]] = l.releaseStep(idle[0])
		return true
	}
	l.releaseInBackground(idle)
	return true
}

// releaseInBackground releases the keys on nodes where no step is under way, and does not wait.
func (k *keys) releaseInBackground(nodes []int) {
	for _, i := range nodes {
		k.engine.workers.run(func() { k.releaseStep(i) })
	}
}

// end ends the lease. Where a step is under way on a node, the step's goroutine calls instead when
// the step is over, or releases the key if instead is nil. idle are the other nodes that are to be
// released: those that may have a key and, after a lock that was held, also those that said that they
// have none, because a waiter may be queued there. ok is false when the lease was over before.
func (l *Lease) end(next state, instead func(i int)) (idle []int, ok bool) {
	idle = make([]int, 0, len(l.nodes))
	l.mu.Lock()
	if l.state.over() {
		l.mu.Unlock()
		return nil, false
	}
	l.become(next, nil)
	wanted := next != failed
	r := &l.ending
	r.wanted, r.instead = wanted, instead
	if wanted {
		if r.answers = r.single[:]; len(l.nodes) != len(r.single) {
			r.answers = make([]vote.Answer, len(l.nodes))
		}
	}
	for i := range l.nodes {
		s := &l.nodes[i]
		s.toRelease = s.busy || s.key.mayHold() || wanted && (s.key.gone() || s.answer.Verdict == vote.Held)
		switch {
		case s.toRelease:
			r.asked++
			if ticket := l.place(i); ticket != nil && ticket.Undoing != nil {
				ticket.Undoing.Add(1)
			}
			// An extension that is made together with others is not waited for: it may take long, and
			// does nothing where it comes after the release.
			// rule: release-follows-step
			if s.due = s.busy && !s.together; !s.due {
				idle = append(idle, i)
			}
		case wanted:
			r.answers[i].Verdict = vote.NotOurs
		}
	}
	r.left.Store(int32(r.asked))
	// If one node is asked, there is no other to wait for.
	if alone := r.asked == 1 && len(idle) == 1 && instead == nil; wanted && r.asked > 0 && !alone {
		r.votes = make(chan stepAnswer, r.asked)
	}
	if r.asked > 0 {
		r.round.begin(l.engine, l.engine.clock.Mono(), releasePatience*l.engine.timeout)
	}
	extending := l.extending
	l.mu.Unlock()

	if len(idle) < r.asked && next != detached { // where the lease is detached, its steps are waited for
		l.abandonSteps(extending)
	}
	return idle, true
}

// abandonSteps tells the steps under way to wait no longer. After a lock that was held, and in an
// attempt that was to take over a holder's keys, they get a moment first: their answers are likely
// to be on their way and would be missed, and an abandoned command costs another to learn when it
// is over.
func (k *keys) abandonSteps(extending *roundContext) {
	end := func() {
		k.round.end()
		if extending != nil && !extending.shared {
			extending.end()
		}
	}
	if !k.ending.wanted && k.request.From == "" {
		end()
		return
	}
	k.engine.clock.AfterFunc(k.engine.timeout/10, end)
}

// releaseStep releases the key on node i, if the step before it may have left one there or somebody
// may wait there.
func (k *keys) releaseStep(i int) vote.Answer {
	a := k.sendRelease(i)
	k.releaseAnswered(i, a)
	return a
}

// sendRelease is releaseStep for a caller that takes in the answer itself.
func (k *keys) sendRelease(i int) vote.Answer {
	if maybe, _ := k.has(i); !maybe && !k.ending.wanted {
		return vote.Answer{Verdict: vote.NotOurs}
	}
	return k.engine.voters[i].Release(&k.ending.round, k.releaseRequest(i))
}

// has reports whether node i may have the key, and whether it said that it has when it last answered.
// Where it may have the key and did not say so, the key may still be on its way.
func (k *keys) has(i int) (maybe, surely bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	node := &k.nodes[i]
	maybe = node.key.mayHold()
	return maybe, maybe && node.answer.Verdict == vote.Granted
}

// releaseRequest returns the request that releases the key on node i.
func (k *keys) releaseRequest(i int) vote.Release {
	k.mu.Lock()
	defer k.mu.Unlock()
	node := &k.nodes[i]
	request := vote.Release{
		Key: k.request.Key, With: k.request.With, ID: k.request.ID, TTL: k.ttl,
		// The waiter that is woken up may reach another node before this release does, and replaces the key
		// there.
		Transfer: k.ending.wanted && k.mayLeave(),
		Waiting:  node.waiting, Shared: k.request.Shared,
	}
	if k.stored > node.stored {
		request.Token = k.stored // else the node has it already
	}
	if ticket := k.place(i); ticket != nil {
		request.Ticket = *ticket
	}
	return request
}

// place returns the waiter's place on node i that the release of a failed attempt tells the node, or nil.
// The lease has ended.
func (k *keys) place(i int) *vote.Ticket {
	if ticket := &k.request.Ticket; !k.ending.wanted && ticket.Waiter != "" && ticket.Node == i {
		return ticket
	}
	return nil
}

// releaseAnswered takes in what became of the key on node i.
func (k *keys) releaseAnswered(i int, answer vote.Answer) {
	r := &k.ending
	if answer.Woken {
		k.engine.onWaiting(k.request.Key)
	}
	if ticket := k.place(i); ticket != nil && ticket.Undoing != nil {
		ticket.Undoing.Done()
	}
	if r.votes != nil {
		r.votes <- stepAnswer{node: i, answer: answer}
	}
	if r.left.Add(-1) == 0 {
		r.round.unlimit()
	}
}
