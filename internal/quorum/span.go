package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// span is the context of one round's commands: it ends when the round does,
// whatever the caller's own context does. It costs one channel, and no more where
// it is part of something else.
type span struct {
	over  chan struct{}
	once  atomic.Bool
	limit clock.Alarm

	mu     sync.Mutex // guards follow; nothing is called while it is held
	follow []func()   // what is called when it ends; nil where that was stopped
}

// begin has the span end after limit, or when it is told to.
func (s *span) begin(e *Engine, limit time.Duration) {
	s.over = make(chan struct{})
	e.clock.Set(&s.limit, limit, s)
}

// Ring implements clock.Ringer.
func (s *span) Ring() { s.end() }

func (s *span) end() {
	if !s.once.CompareAndSwap(false, true) {
		return
	}
	close(s.over)
	s.mu.Lock()
	follow := s.follow
	s.follow = nil
	s.mu.Unlock()
	for _, f := range follow {
		if f != nil {
			f()
		}
	}
}

// AfterFunc is what context.AfterFunc is for other contexts, but that f is called
// by who ends the span, and does not block.
func (s *span) AfterFunc(f func()) (stop func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.once.Load() {
		f()
		return func() bool { return false }
	}
	i := len(s.follow)
	s.follow = append(s.follow, f)
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

func (s *span) Deadline() (time.Time, bool) { return time.Time{}, false }
func (s *span) Done() <-chan struct{}       { return s.over }
func (s *span) Value(any) any               { return nil }

func (s *span) Err() error {
	if s.once.Load() {
		return context.Canceled
	}
	return nil
}
