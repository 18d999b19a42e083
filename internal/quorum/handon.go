package quorum

import (
	"context"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/ballot"
)

// A holder whom others wait for gives its lock up on the node that keeps the line,
// which calls one of them, and leaves its records on the other nodes for that one
// to take over: one command a node for a lock that changes hands, in place of two,
// and no release that may arrive after the next holder's attempt.
//
// Nothing depends on whether they are taken over. The holder holds nothing any
// more, so its records may be replaced or removed by anybody and at any time.

// keeper returns the seat of the node that keeps the line for the lock, if others
// may wait there and the records lie on more nodes than that one; else -1.
func (h *Hold) keeper() int {
	if len(h.seats) == 1 {
		return -1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if place := h.claim.Place; place.Waiter != "" && h.seats[place.Voter].busy {
		return place.Voter // the place that it has had
	}
	return slices.IndexFunc(h.seats, func(s seat) bool { return s.waiting })
}

// leaves reports whether the record on seat i may be left to another: one of which it
// is not known whether it is there yet may come after that other has gone.
func (h *Hold) leaves(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.seats[i].ours || h.seats[i].answer.Verdict == ballot.Granted
}

// sorting is the seats on which no step is under way, as long as it is open whether
// their records are released or left.
type sorting struct {
	mu   sync.Mutex // guards what follows; nothing is called while it is held
	over bool
	idle []int
	// more has an element when idle has grown.
	more chan struct{}
}

func (s *sorting) add(seats ...int) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.idle = append(s.idle, seats...)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return true
}

func (s *sorting) has(seat int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.idle, seat)
}

// end returns the seats but for one.
func (s *sorting) end(except int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return slices.DeleteFunc(s.idle, func(i int) bool { return i == except })
}

// handOn ends the hold. It releases the record on the keeper's node, and if somebody
// is called there leaves the others, but for those that may not be there yet. If nobody
// is called it releases all. It reports false when the hold was over before.
//
// Neither a step that is under way on the keeper's node nor its answer is waited for
// for long.
func (h *Hold) handOn(keeper int) bool {
	s := &sorting{more: make(chan struct{}, 1)}
	idle, ok := h.finish(nil, true, func(i int) {
		if !s.add(i) {
			h.releaseLane(i)
		}
	})
	if !ok {
		return false
	}
	s.add(idle...)
	var short span
	short.begin(h.engine, h.engine.clock.Mono(), h.engine.timeout/4)
	defer short.unlimit()
	for !s.has(keeper) && short.Err() == nil {
		select {
		case <-s.more:
		case <-short.Done():
		}
	}
	if !s.has(keeper) {
		h.releaseAll(s.end(-1))
		return true
	}
	claim, _ := h.releasable(keeper)
	a := h.engine.voters[keeper].Release(&short, claim)
	// A server that is out of memory may have called somebody before it said so.
	h.release.offered = a.Verdict == ballot.Unknown || a.Verdict == ballot.Unavailable
	others := s.end(keeper)
	h.released(keeper, a)
	if a.Verdict != ballot.Granted || !a.Waiting {
		h.releaseAll(others)
		return true
	}
	var left, uncertain []int
	for _, i := range others {
		if !h.leaves(i) {
			uncertain = append(uncertain, i)
			continue
		}
		left = append(left, i)
		h.released(i, ballot.Answer{Verdict: ballot.Granted})
	}
	h.engine.leaveBehind(claim, left)
	h.releaseAll(uncertain)
	return true
}

// takeOverLane is acquireLane for an attempt to which a holder may have left its records.
// Where it cannot have taken one over it has it removed.
func (h *Hold) takeOverLane(ctx context.Context, i int) ballot.Answer {
	a := h.acquireLane(ctx, i)
	if h.claim.From != "" && a.Verdict != ballot.Granted && a.Verdict != ballot.Held && i != h.claim.Place.Voter {
		before := h.claim
		before.ID, before.Place = before.From, ballot.Place{}
		h.engine.remove(before, []int{i})
	}
	return a
}
