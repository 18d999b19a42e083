package storm

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Successors are those who get a lock after its holder, while things happen to the servers.
type Successors struct {
	t      *testing.T
	held   *redlatch.Lock
	asking sync.WaitGroup

	mu  sync.Mutex // guards all
	all []successor
}

// successor is one who got the lock.
type successor struct {
	at    time.Time
	token uint64
	left  time.Duration // of the former holder's time
	over  bool          // others may have had the lock since
}

// NewSuccessors is of the lock that is held.
func NewSuccessors(t *testing.T, held *redlatch.Lock) *Successors {
	return &Successors{t: t, held: held}
}

// Try has a client try once, and reports whether it got the lock.
func (s *Successors) Try(client *redlatch.Client) bool {
	lock, err := client.TryLock(s.t.Context(), s.held.Name())
	if err != nil {
		return false
	}
	next := successor{at: time.Now(), token: lock.Token()}
	if s.held.Err() == nil {
		next.left = time.Until(s.held.Until())
	}
	next.over = lock.Err() != nil
	_ = lock.Unlock(s.t.Context()) // what it returns depends on what happens
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, next)
	return !next.over
}

// Ask has a client try again and again, in the background, until it gets the lock or the test is over.
func (s *Successors) Ask(client *redlatch.Client) {
	s.asking.Go(func() {
		for s.t.Context().Err() == nil && !s.Try(client) {
			Rest(s.t.Context(), time.Millisecond)
		}
	})
}

// Judge waits for those who ask. None may have got the lock before the holder's time was over, and tokens grow. what has
// happened goes into the errors.
func (s *Successors) Judge(what string) {
	s.t.Helper()
	s.asking.Wait()
	slices.SortFunc(s.all, func(a, b successor) int { return a.at.Compare(b.at) })
	last := s.held.Token()
	for _, next := range s.all {
		if next.left > 0 {
			s.t.Errorf("after %s: two holders, the first for another %v", what, next.left)
		}
		before := last
		if next.over {
			before = s.held.Token()
		} else {
			last = next.token
		}
		if next.token <= before {
			s.t.Errorf("after %s: token %d after %d", what, next.token, before)
		}
	}
}
