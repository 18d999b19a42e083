package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// A holder whom others wait for gives its lock up on the arbiter,
// which wakes up one of them, and leaves its keys on the other nodes for that one
// to take over: one command a node for a lock that changes hands, in place of two,
// and no release that may arrive after the next holder's attempt.
//
// Nothing depends on whether they are taken over. The holder holds nothing any
// more, so its keys may be replaced or removed by anybody and at any time.

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
// is woken up it releases all. It reports false when the lease was over before.
//
// Neither a step that is under way on the arbiter nor its answer is waited for
// for long.
func (l *Lease) releaseToQueue(arbiter int) bool {
	s := &sorting{more: make(chan struct{}, 1)}
	idle, ok := l.end(released, nil, func(i int) {
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
	// A server that is out of memory may have woken somebody up before it said so.
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

// acquireTransferred is acquireStep for an attempt to which a holder may have left its keys:
// where it cannot have taken one over it has it removed.
func (k *keys) acquireTransferred(ctx context.Context, i int) vote.Answer {
	a := k.acquireStep(ctx, i)
	if a.Verdict != vote.Granted && a.Verdict != vote.Held && i != k.request.Ticket.Node {
		before := vote.Release{Key: k.request.Key, ID: k.request.From, TTL: k.request.TTL}
		k.engine.remove(before, []int{i})
	}
	return a
}

// Transfer ends the lease, as Release does, and makes an attempt for request that
// may take the place of its keys: one step on each node in place of two, and
// nobody comes between. A node that has no key of the lease, and none of
// another, grants it as it would any attempt.
//
// decided is called once the attempt is, before the old keys' last answers,
// which its validity does not wait for. next is nil when the attempt failed: then
// what it may have left, and the lease's own keys, are released. The answers
// are those of Release; ok is false when the lease was given up before, and nothing
// was attempted: next is nil then too.
func (l *Lease) Transfer(request vote.Acquire, decided func(next *Lease)) (answers []vote.Answer, ok bool) {
	free := make([]chan struct{}, len(l.nodes))
	for i := range free {
		free[i] = make(chan struct{})
	}
	idle, ok := l.end(transferred, nil, func(i int) { close(free[i]) })
	if !ok {
		decided(nil)
		return nil, false
	}
	for _, i := range idle {
		close(free[i])
	}
	start := l.engine.clock.Now()
	request.From, request.Barge = l.ID(), true
	// The time that the lease's steps take is part of the attempt's.
	next, _ := newKeys(l.engine, request, start).acquire(context.Background(), start, func(attempt *keys, ctx context.Context, i int) vote.Answer {
		if !l.nodes[i].asked {
			return attempt.acquireStep(ctx, i)
		}
		<-free[i] // a step of the lease comes first
		a := attempt.acquireStep(ctx, i)
		l.released(i, l.releaseUnlessTaken(i, request.ID, a))
		return a
	})
	decided(next)
	return l.collect(), true
}

// releaseUnlessTaken releases the key on node i, unless it was transferred to the
// attempt of id, whose answer is a.
func (k *keys) releaseUnlessTaken(i int, id string, a vote.Answer) vote.Answer {
	switch {
	case a.Verdict == vote.Granted && a.Transferred:
		return vote.Answer{Verdict: vote.Granted, Waiting: a.Waiting}
	case a.Verdict == vote.Granted:
		return vote.Answer{Verdict: vote.NotOurs, Waiting: a.Waiting}
	}
	released := k.releaseOn(i)
	switch {
	case released.Verdict == vote.Held && released.Holder == id:
		released.Verdict = vote.Granted // the answer was lost, and it was done
	// rule: not-lost-in-doubt
	case (released.Verdict == vote.NotOurs || released.Verdict == vote.Held) && a.Verdict == vote.Unknown:
		// It may have been done, and undone since, and another have come: nobody can say
		// that it was lost.
		released = vote.Answer{Verdict: vote.Unknown, Err: a.Err, Waiting: released.Waiting}
	}
	return released
}

// transfers are what the holders of one engine have left lately, the last of each
// key.
type transfers struct {
	mu     sync.Mutex // guards what follows; nothing is called while it is held
	of     map[string]*transfer
	closed bool
	// removing counts those whose removal is being started.
	removing sync.WaitGroup
}

// transfer is the keys that a holder left on nodes.
type transfer struct {
	request vote.Release
	nodes   []int
}

const (
	// transferTime is how long whoever was woken up has to take a transfer over; then what
	// is left of it is removed.
	transferTime = 500 * time.Millisecond
	// maxTransfers bounds how many are kept in mind.
	maxTransfers = 1024
)

// leaveTo leaves the keys of request on nodes to whoever was woken up. What was left
// of the same key before has been taken over since: it was held again.
func (e *Engine) leaveTo(request vote.Release, nodes []int) {
	l, s := &transfer{request: request, nodes: nodes}, &e.transfers
	s.mu.Lock()
	kept := !s.closed && (len(s.of) < maxTransfers || s.of[request.Key] != nil)
	if kept {
		s.of[request.Key] = l
	}
	s.mu.Unlock()
	if kept {
		e.clock.AfterFunc(transferTime, func() { e.clear(l) })
		return
	}
	e.remove(request, nodes)
}

// clear removes what is left of a transfer whose time is over, unless another has
// followed it.
func (e *Engine) clear(l *transfer) {
	s := &e.transfers
	s.mu.Lock()
	last := s.of[l.request.Key] == l
	if last {
		delete(s.of, l.request.Key)
		s.removing.Add(1)
	}
	s.mu.Unlock()
	if last {
		e.remove(l.request, l.nodes)
		s.removing.Done()
	}
}

// clearAll removes what is left of all transfers: nobody else does when the process ends.
func (e *Engine) clearAll() {
	s := &e.transfers
	s.mu.Lock()
	left := s.of
	s.of, s.closed = nil, true
	s.mu.Unlock()
	for _, l := range left {
		e.remove(l.request, l.nodes)
	}
	s.removing.Wait()
}

// Remove removes the keys of a holder that holds nothing any more. It does not
// wait.
func (e *Engine) Remove(request vote.Release) {
	nodes := make([]int, len(e.voters))
	for i := range nodes {
		nodes[i] = i
	}
	e.remove(request, nodes)
}

func (e *Engine) remove(request vote.Release, nodes []int) {
	k := newKeys(e, vote.Acquire{Key: request.Key, ID: request.ID, TTL: request.TTL}, e.clock.Now())
	for _, i := range nodes {
		k.nodes[i].ours = true
	}
	k.giveUp()
}
