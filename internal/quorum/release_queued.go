package quorum

import (
	"context"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/vote"
)

// A holder whom others wait for gives its lock up on the node that keeps the queue,
// which calls one of them, and leaves its records on the other nodes for that one
// to take over: one command a node for a lock that changes hands, in place of two,
// and no release that may arrive after the next holder's attempt.
//
// Nothing depends on whether they are taken over. The holder holds nothing any
// more, so its records may be replaced or removed by anybody and at any time.

// arbiter returns the node of the node that keeps the queue for the lock, if others
// may wait there and the records lie on more nodes than that one; else -1.
func (l *Lease) arbiter() int {
	if len(l.nodes) == 1 {
		return -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ticket := l.request.Ticket; ticket.Waiter != "" && l.nodes[ticket.Node].busy {
		return ticket.Node // the place that it has had
	}
	return slices.IndexFunc(l.nodes, func(s nodeState) bool { return s.waiting })
}

// leaves reports whether the record on node i may be left to another: one of which it
// is not known whether it is there yet may come after that other has gone.
func (l *Lease) leaves(i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.nodes[i].ours || l.nodes[i].answer.Verdict == vote.Granted
}

// sorting is the nodes on which no step is under way, as long as it is open whether
// their records are released or left.
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

// releaseToQueue ends the lease. It releases the record on the arbiter's node, and if somebody
// is called there leaves the others, but for those that may not be there yet. If nobody
// is called it releases all. It reports false when the lease was over before.
//
// Neither a step that is under way on the arbiter's node nor its answer is waited for
// for long.
func (l *Lease) releaseToQueue(arbiter int) bool {
	s := &sorting{more: make(chan struct{}, 1)}
	idle, ok := l.finish(nil, true, func(i int) {
		if !s.add(i) {
			l.releaseStep(i)
		}
	})
	if !ok {
		return false
	}
	s.add(idle...)
	var short roundContext
	short.begin(l.engine, l.engine.clock.Mono(), l.engine.timeout/4)
	defer short.unlimit()
	for !s.has(arbiter) && short.Err() == nil {
		select {
		case <-s.more:
		case <-short.Done():
		}
	}
	if !s.has(arbiter) {
		l.releaseAll(s.end(-1))
		return true
	}
	request, _ := l.releasable(arbiter)
	a := l.engine.voters[arbiter].Release(&short, request)
	// A server that is out of memory may have called somebody before it said so.
	l.release.offered = a.Verdict == vote.Unknown || a.Verdict == vote.Unavailable
	others := s.end(arbiter)
	l.released(arbiter, a)
	if a.Verdict != vote.Granted || !a.Waiting {
		l.releaseAll(others)
		return true
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
	l.engine.leaveTo(request, left)
	l.releaseAll(uncertain)
	return true
}

// acquireTransferred is acquireStep for an attempt to which a holder may have left its records.
// Where it cannot have taken one over it has it removed.
func (l *Lease) acquireTransferred(ctx context.Context, i int) vote.Answer {
	a := l.acquireStep(ctx, i)
	if l.request.From != "" && a.Verdict != vote.Granted && a.Verdict != vote.Held && i != l.request.Ticket.Node {
		before := vote.Release{Key: l.request.Key, ID: l.request.From, TTL: l.request.TTL}
		l.engine.remove(before, []int{i})
	}
	return a
}
