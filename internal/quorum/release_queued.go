package quorum

import (
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/vote"
)

// A holder whom others wait for gives its lock up on the arbiter,
// which wakes up one of them, and leaves its keys on the other nodes for that one
// to take over: one command a node for a lock that changes hands, in place of two,
// and no release that may arrive after the next holder's attempt.
//
// Nothing depends on whether they are taken over. The holder holds nothing any
// more, so its keys may be replaced or removed by anybody and at any time.

// release is Lease.Release.
func (t *Transfers) release(l *Lease) (answers []vote.Answer, ok bool) {
	offered := false
	if arbiter := l.arbiter(); arbiter >= 0 {
		offered, ok = t.releaseToQueue(l, arbiter)
	} else {
		ok = l.releaseEverywhere(released)
	}
	if !ok {
		return nil, false
	}
	return l.collectTransferred(offered), true
}

// collectTransferred is collect where the waiter that was woken up may have taken over what is not
// there any more. offered: the arbiter may have woken somebody up, and has not said so.
func (k *keys) collectTransferred(offered bool) []vote.Answer {
	woken := func(answers []vote.Answer) bool {
		return offered || slices.ContainsFunc(answers, func(a vote.Answer) bool { return a.Waiting })
	}
	answers := k.collect(func(answers []vote.Answer) bool {
		gone := count(answers, vote.Granted, vote.NotOurs, vote.Held)
		return deleted(answers) || woken(answers) && gone >= Majority(len(answers))
	})
	for i := range answers {
		if a := &answers[i]; (a.Verdict == vote.NotOurs || a.Verdict == vote.Held) && woken(answers) {
			a.Verdict = vote.Granted
		}
	}
	return answers
}

// arbiter returns the node that keeps the wait queue for the lock, if others
// may wait there and the keys lie on more nodes than that one; else -1.
func (k *keys) arbiter() int {
	if len(k.nodes) == 1 {
		return -1
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ticket := k.request.Ticket; ticket.Waiter != "" && k.nodes[ticket.Node].busy {
		return ticket.Node // the place that it has had
	}
	return slices.IndexFunc(k.nodes, func(s nodeState) bool { return s.waiting })
}

// leaves reports whether the key on node i may be left to another: one of which it
// is not known whether it is there yet may come after that other has gone.
func (k *keys) leaves(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.nodes[i].ours || k.nodes[i].answer.Verdict == vote.Granted
}

// sorting is the nodes on which no step is under way, as long as it is open whether
// their keys are released or left.
type sorting struct {
	mu   sync.Mutex // guards what follows; nothing is called while it is held
	over bool
	idle []int
	// more has an element when idle has grown.
	more chan struct{}
}

func (s *sorting) add(nodes ...int) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.idle = append(s.idle, nodes...)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return true
}

func (s *sorting) has(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.idle, node)
}

// end returns the nodes but for one.
func (s *sorting) end(except int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return slices.DeleteFunc(s.idle, func(i int) bool { return i == except })
}

// releaseToQueue ends the lease. It releases the key on the arbiter, and if somebody
// is woken up there leaves the others, but for those that may not be there yet. If nobody
// is woken up it releases all. ok is false when the lease was over before.
//
// Neither a step that is under way on the arbiter nor the answer to the release is waited for
// longer than a quarter of a step's time: offered is true where it may yet wake somebody up.
func (t *Transfers) releaseToQueue(l *Lease, arbiter int) (offered, ok bool) {
	s := &sorting{more: make(chan struct{}, 1)}
	idle, ok := l.end(released, nil, func(i int) {
		if !s.add(i) {
			l.releaseStep(i)
		}
	})
	if !ok {
		return false, false
	}
	s.add(idle...)
	var before, release roundContext
	before.begin(l.engine, l.engine.clock.Mono(), l.engine.timeout/4)
	for !s.has(arbiter) && before.Err() == nil {
		select {
		case <-s.more:
		case <-before.Done():
		}
	}
	before.unlimit()
	if !s.has(arbiter) {
		l.releaseAll(s.end(-1))
		return false, true
	}
	request, _ := l.releasable(arbiter)
	release.begin(l.engine, l.engine.clock.Mono(), l.engine.timeout/4)
	a := l.engine.voters[arbiter].Release(&release, request)
	release.unlimit()
	// A server that is out of memory may have woken somebody up before it said so.
	offered = a.Verdict == vote.Unknown || a.Verdict == vote.Unavailable
	others := s.end(arbiter)
	l.released(arbiter, a)
	if a.Verdict != vote.Granted || !a.Waiting {
		l.releaseAll(others)
		return offered, true
	}
	var left, uncertain []int
	for _, i := range others {
		if !l.leaves(i) {
			uncertain = append(uncertain, i)
			continue
		}
		left = append(left, i)
		l.released(i, vote.Answer{Verdict: vote.Granted})
	}
	t.leave(request, left)
	l.releaseAll(uncertain)
	return false, true
}
