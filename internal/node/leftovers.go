package node

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// maxLeftovers bounds the records a node may owe us the deletion of. Beyond it
// the oldest is left to its TTL.
const maxLeftovers = 4096

// recent is how many are looked at for one that is there already.
const recent = 32

// leftover is a record that may lie on a node and whose release got no answer.
type leftover struct {
	claim vote.Claim
	// gone is when its TTL has removed it at the latest.
	gone time.Time
}

// leftovers is the list of what is still to be released on one node.
type leftovers struct {
	mu      sync.Mutex // guards what follows; nothing is called while it is held
	list    []leftover
	running bool
}

// add keeps l, and reports whether somebody must start working the list off. One
// that several tries of a call wanted removed is kept once.
func (s *leftovers) add(l leftover) (start bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := max(0, len(s.list)-recent); i < len(s.list); i++ {
		if known := &s.list[i]; known.claim.ID == l.claim.ID && known.claim.Record == l.claim.Record {
			known.gone = later(known.gone, l.gone)
			return false
		}
	}
	if len(s.list) == maxLeftovers {
		s.list = s.list[1:]
	}
	s.list = append(s.list, l)
	start = !s.running
	s.running = true
	return start
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// next takes the oldest that its TTL has not removed yet. When there is none
// the work is over.
func (s *leftovers) next() (leftover, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.list) > 0 {
		l := s.list[0]
		s.list = s.list[1:]
		if now.Before(l.gone) {
			return l, true
		}
	}
	s.list, s.running = nil, false
	return leftover{}, false
}

// back returns what could not be released yet to the head of the list.
func (s *leftovers) back(l leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append([]leftover{l}, s.list...)
}
