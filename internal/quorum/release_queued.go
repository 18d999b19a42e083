package quorum

import (
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/vote"
)

// A holder that others wait for gives up its lock on the arbiter, which wakes up one of them, and
// leaves its keys on the other nodes for that waiter to take over. A lock that changes hands then
// costs one command on each node in place of two, and no release can arrive after the next holder's
// attempt.
//
// Nothing depends on whether the keys are taken over. The holder holds nothing any more, so anybody
// may replace or remove its keys at any time.

// release is Lease.Release.
func (t *Transfers) release(l *Lease) (answers []vote.Answer, ok bool) {
	offered := false
	if arbiter := l.arbiter(); arbiter >= 0 {
		offered, ok = t.releaseToQueue(l, arbiter)
	} else {
		ok = l.endAndRelease(released)
	}
	if !ok {
		return nil, false
	}
	return l.collectTransferred(offered), true
}

// collectTransferred is collect for keys that the waiter that was woken up may have taken over by
// now. offered: the arbiter may have woken somebody up without saying so.
func (k *keys) collectTransferred(offered bool) []vote.Answer {
	woken := func(answers []vote.Answer) bool {
		return offered || slices.ContainsFunc(answers, func(a vote.Answer) bool { return a.Woken })
	}
	answers := k.collect(func(answers []vote.Answer) bool {
		gone := Count(answers, vote.Granted, vote.NotOurs, vote.Held)
		return deleted(answers) || woken(answers) && gone >= Majority(len(answers))
	})
	for i := range answers {
		if a := &answers[i]; (a.Verdict == vote.NotOurs || a.Verdict == vote.Held) && woken(answers) {
			a.Verdict = vote.Granted
		}
	}
	return answers
}

// arbiter returns the node that keeps the wait queue for the lock, if others may wait there; else -1. It is
// also -1 where others wait on several nodes, as clients do that cannot reach the same: each of these nodes is
// to wake up its first, as those who wait on one of them would otherwise have the lock in turns for ever.
func (k *keys) arbiter() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	arbiter := -1
	for i, s := range k.nodes {
		// Where the attempt had its ticket, there may be others until the node has answered.
		unheard := s.busy && k.request.Ticket.Waiter != "" && k.request.Ticket.Node == i
		if !s.waiting && !unheard {
			continue
		}
		if arbiter >= 0 {
			return -1
		}
		arbiter = i
	}
	return arbiter
}

// sorting has the nodes on which no step is under way, while it is open whether their keys are
// released or left.
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

// end closes the sorting and returns its nodes but for one.
func (s *sorting) end(except int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return slices.DeleteFunc(s.idle, func(i int) bool { return i == except })
}

// releaseToQueue ends the lease. It releases the key on the arbiter. If that wakes somebody up, it
// leaves the other keys to the waiter, but for those that may not be there yet; if not, it releases
// all. ok is false when the lease was over before.
//
// It waits for at most a quarter of a step's time for a step that is under way on the arbiter, and
// as long for the answer to the release. offered is true where the release may yet wake somebody
// up.
func (t *Transfers) releaseToQueue(l *Lease, arbiter int) (offered, ok bool) {
	s := &sorting{more: make(chan struct{}, 1)}
	idle, ok := l.end(released, func(i int) {
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
		l.releaseInBackground(s.end(-1))
		return false, true
	}
	request := l.releaseRequest(arbiter)
	release.begin(l.engine, l.engine.clock.Mono(), l.engine.timeout/4)
	a := l.engine.voters[arbiter].Release(&release, request)
	release.unlimit()
	// A server that is out of memory may have woken somebody up before it answered so.
	offered = a.Verdict == vote.Unknown || a.Verdict == vote.Unavailable
	others := s.end(arbiter)
	l.releaseAnswered(arbiter, a)
	if !a.Woken {
		l.releaseInBackground(others)
		return offered, true
	}
	var left, uncertain []int
	for _, i := range others {
		if maybe, surely := l.has(i); maybe && !surely {
			uncertain = append(uncertain, i) // it could arrive after the next holder has gone
			continue
		}
		left = append(left, i)
		l.releaseAnswered(i, vote.Answer{Verdict: vote.Granted})
	}
	t.leave(request, left, func(i int) bool { _, surely := l.has(i); return surely })
	l.releaseInBackground(uncertain)
	return false, true
}
