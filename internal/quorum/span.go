package quorum

import (
	"context"
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
}

// begin has the span end after limit, or when it is told to.
func (s *span) begin(e *Engine, limit time.Duration) {
	s.over = make(chan struct{})
	e.clock.Set(&s.limit, limit, s)
}

// Ring implements clock.Ringer.
func (s *span) Ring() { s.end() }

func (s *span) end() {
	if s.once.CompareAndSwap(false, true) {
		close(s.over)
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
