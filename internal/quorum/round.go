package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// roundContext is the context of one round's commands: it ends when the round does, whatever the
// caller's own context does. It is a field of another struct, and costs no allocation until somebody
// waits for it: the contexts of package context cost several for each command.
type roundContext struct {
	ended atomic.Bool
	// shared: several leases use it.
	shared bool
	// alarm ends it, at a time that is counted from began.
	alarm clock.Alarm
	began time.Time

	mu     sync.Mutex    // guards what follows; nothing is called while it is held
	over   chan struct{} // for those who wait for the end; nil before anybody does
	follow []func()      // called when it ends; nil where that was stopped
	first  [1]func()     // room for the usual follow
}

// begin makes the round context end limit after start on the monotonic clock, or earlier when it is
// told to.
func (s *roundContext) begin(e *Engine, start time.Time, limit time.Duration) {
	s.began = start
	e.clock.SetFrom(&s.alarm, start, limit, s)
}

// prolong makes the round context end limit after it began, if it has not ended yet.
func (s *roundContext) prolong(limit time.Duration) { s.alarm.ResetSince(s.began, limit) }

// unlimit makes the round context end only when it is told to.
func (s *roundContext) unlimit() { s.alarm.Stop() }

// Ring implements clock.Ringer.
func (s *roundContext) Ring() { s.end() }

func (s *roundContext) end() {
	if !s.ended.CompareAndSwap(false, true) {
		return
	}
	s.alarm.Stop()
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
		if s.ended.Load() {
			return closed // end sets ended before it looks for over
		}
		s.over = make(chan struct{})
	}
	return s.over
}

// closed is a closed channel.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// AfterFunc is what context.AfterFunc is for other contexts, except that f must not block, and that
// it is called by whoever ends the round context, if that has not ended yet.
func (s *roundContext) AfterFunc(f func()) (stop func() bool) {
	s.mu.Lock()
	if s.ended.Load() {
		s.mu.Unlock()
		go f() // as in package context: the caller may hold what f wants
		return func() bool { return false }
	}
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
	if s.ended.Load() {
		return context.Canceled
	}
	return nil
}
