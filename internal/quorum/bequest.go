package quorum

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
)

// bequests are what the holders of one engine have left lately, the last of each
// record.
type bequests struct {
	mu     sync.Mutex // guards what follows; nothing is called while it is held
	of     map[string]*bequest
	closed bool
	// removing counts those whose removal is being started.
	removing sync.WaitGroup
}

// bequest is the records that a holder left on seats.
type bequest struct {
	claim ballot.Claim
	seats []int
}

const (
	// bequestTime is how long whoever was called has to take a bequest over; then what
	// is left of it is removed.
	bequestTime = 500 * time.Millisecond
	// maxBequests bounds how many are kept in mind.
	maxBequests = 1024
)

// leaveBehind leaves claim's records on seats to whoever was called. What was left
// of the same record before has been taken over since: it was held again.
func (e *Engine) leaveBehind(claim ballot.Claim, seats []int) {
	l, s := &bequest{claim: claim, seats: seats}, &e.bequests
	s.mu.Lock()
	kept := !s.closed && (len(s.of) < maxBequests || s.of[claim.Record] != nil)
	if kept {
		s.of[claim.Record] = l
	}
	s.mu.Unlock()
	if kept {
		e.clock.AfterFunc(bequestTime, func() { e.clear(l) })
		return
	}
	e.remove(claim, seats)
}

// clear removes what is left of a bequest whose time is over, unless another has
// followed it.
func (e *Engine) clear(l *bequest) {
	s := &e.bequests
	s.mu.Lock()
	last := s.of[l.claim.Record] == l
	if last {
		delete(s.of, l.claim.Record)
		s.removing.Add(1)
	}
	s.mu.Unlock()
	if last {
		e.remove(l.claim, l.seats)
		s.removing.Done()
	}
}

// clearAll removes all bequests: the process may end, and nobody else see to it.
func (e *Engine) clearAll() {
	s := &e.bequests
	s.mu.Lock()
	left := s.of
	s.of, s.closed = nil, true
	s.mu.Unlock()
	for _, l := range left {
		e.remove(l.claim, l.seats)
	}
	s.removing.Wait()
}

// Remove removes the records of a holder that holds nothing any more. It does not
// wait.
func (e *Engine) Remove(claim ballot.Claim) {
	seats := make([]int, len(e.voters))
	for i := range seats {
		seats[i] = i
	}
	e.remove(claim, seats)
}

func (e *Engine) remove(claim ballot.Claim, seats []int) {
	h := newHold(e, claim, e.clock.Now())
	for _, i := range seats {
		h.seats[i].ours = true
	}
	h.giveUp(false)
}
