package quorum

import (
	"context"
	"sync/atomic"
	"time"
)

// span is the context of one round's commands: it ends when the round does,
// whatever the caller's own context does, and costs one channel.
type span struct {
	over chan struct{}
	once atomic.Bool
}

func newSpan() *span { return &span{over: make(chan struct{})} }

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
