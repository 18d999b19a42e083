package quorum

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// transfers are what the holders of one engine have left lately, the last of each
// record.
type transfers struct {
	mu     sync.Mutex // guards what follows; nothing is called while it is held
	of     map[string]*transfer
	closed bool
	// removing counts those whose removal is being started.
	removing sync.WaitGroup
}

// transfer is the records that a holder left on nodes.
type transfer struct {
	request vote.Release
	nodes   []int
}

const (
	// transferTime is how long whoever was called has to take a transfer over; then what
	// is left of it is removed.
	transferTime = 500 * time.Millisecond
	// maxTransfers bounds how many are kept in mind.
	maxTransfers = 1024
)

// leaveTo leaves the keys of request on nodes to whoever was called. What was left
// of the same record before has been taken over since: it was held again.
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

// clearAll removes all transfers: the process may end, and nobody else see to it.
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

// Remove removes the records of a holder that holds nothing any more. It does not
// wait.
func (e *Engine) Remove(request vote.Release) {
	nodes := make([]int, len(e.voters))
	for i := range nodes {
		nodes[i] = i
	}
	e.remove(request, nodes)
}

func (e *Engine) remove(request vote.Release, nodes []int) {
	l := newLease(e, vote.Acquire{Key: request.Key, ID: request.ID, TTL: request.TTL}, e.clock.Now())
	for _, i := range nodes {
		l.nodes[i].ours = true
	}
	l.giveUp(false)
}
