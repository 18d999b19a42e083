package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// roundContext is the context of one round's commands: it ends when the round does,
// whatever the caller's own context does. It is part of something else, and costs
// neither an allocation nor an alarm until somebody waits for it: steps that go with
// others do not.
type roundContext struct {
	once atomic.Bool
	// shared: it is that of several leases.
	shared bool

	mu sync.Mutex // guards what follows; nothing that blocks is called while it is held
	// limit is how long after began the alarm is to ring, set when somebody first waits for
	// the end; 0 before the round context begins, once it is set, and when there is no limit any more.
	limit  time.Duration
	began  time.Time
	alarm  clock.Alarm
	over   chan struct{} // for who waits for the end; nil before anybody does
	follow []func()      // what is called when it ends; nil where that was stopped
	first  [1]func()     // room for the usual follow
}

// begin has the round context end limit after start, on the monotonic clock, or when it is told to.
// The time until somebody first waits for it counts: a step that first went with others has
// what they left of its time.
func (s *roundContext) begin(e *Engine, start time.Time, limit time.Duration) {
	e.clock.Prepare(&s.alarm, s)
	s.began, s.limit = start, limit
}

// prolong has the round context, if it has not ended yet, end limit after it began.
func (s *roundContext) prolong(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 {
		s.limit = limit
	} else {
		s.alarm.ResetSince(s.began, limit)
	}
}

// unlimit has the round context end when it is told to, only.
func (s *roundContext) unlimit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = 0
	s.alarm.Stop()
}

// await takes in that somebody waits for the end. The caller holds s.mu.
func (s *roundContext) await() {
	if s.limit > 0 {
		s.alarm.ResetSince(s.began, s.limit)
		s.limit = 0
	}
}

// Ring implements clock.Ringer.
func (s *roundContext) Ring() { s.end() }

func (s *roundContext) end() {
	if !s.once.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	if s.over != nil {
		close(s.over)
	}
	follow := s.follow
	s.follow = nil
	s.mu.Unlock()
	for _, f := range follow {
		if f != nil {
			f()
		}
	}
}

func (s *roundContext) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		if s.once.Load() {
			return ended // who ends the round context says so before it looks for over
		}
		s.over = make(chan struct{})
		s.await()
	}
	return s.over
}

// ended is closed.
var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// AfterFunc is what context.AfterFunc is for other contexts, but that f does not block and
// is called by who ends the round context, if it has not ended yet.
func (s *roundContext) AfterFunc(f func()) (stop func() bool) {
	s.mu.Lock()
	if s.once.Load() {
		s.mu.Unlock()
		go f() // the caller may hold what f wants, as package context does
		return func() bool { return false }
	}
	s.await()
	i := len(s.follow)
	if i == 0 {
		s.follow = s.first[:0]
	}
	s.follow = append(s.follow, f)
	s.mu.Unlock()
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i >= len(s.follow) || s.follow[i] == nil {
			return false
		}
		s.follow[i] = nil
		return true
	}
}

func (s *roundContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (s *roundContext) Value(any) any               { return nil }

func (s *roundContext) Err() error {
	if s.once.Load() {
		return context.Canceled
	}
	return nil
}
