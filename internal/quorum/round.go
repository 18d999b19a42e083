package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// roundContext is the context of one round's commands: it ends when the round does, whatever the
// caller's own context does. It is a field of another struct, and costs neither an allocation nor
// an alarm until somebody waits for it: steps that go with others do not.
type roundContext struct {
	ended atomic.Bool
	// shared: several leases use it.
	shared bool

	mu sync.Mutex // guards what follows; nothing that blocks is called while it is held
	// limit is how long after began the alarm is to ring. The alarm is set when somebody first
	// waits for the end. limit is 0 before begin, once the alarm is set, and when there is no limit
	// any more.
	limit  time.Duration
	began  time.Time
	alarm  clock.Alarm
	over   chan struct{} // for those who wait for the end; nil before anybody does
	follow []func()      // called when it ends; nil where that was stopped
	first  [1]func()     // room for the usual follow
}

// begin makes the round context end limit after start on the monotonic clock, or earlier when it is
// told to. The time before somebody first waits for it counts too: a step that first went with
// others has only what they left of its time.
func (s *roundContext) begin(e *Engine, start time.Time, limit time.Duration) {
	e.clock.Prepare(&s.alarm, s)
	s.began, s.limit = start, limit
}

// prolong makes the round context end limit after it began, if it has not ended yet.
func (s *roundContext) prolong(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit > 0 {
		s.limit = limit
	} else {
		s.alarm.ResetSince(s.began, limit)
	}
}

// unlimit makes the round context end only when it is told to.
func (s *roundContext) unlimit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = 0
	s.alarm.Stop()
}

// await notes that somebody waits for the end. The caller holds s.mu.
func (s *roundContext) await() {
	if s.limit > 0 {
		s.alarm.ResetSince(s.began, s.limit)
		s.limit = 0
	}
}

// Ring implements clock.Ringer.
func (s *roundContext) Ring() { s.end() }

func (s *roundContext) end() {
	if !s.ended.CompareAndSwap(false, true) {
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
		if s.ended.Load() {
			return closed // end sets ended before it looks for over
		}
		s.over = make(chan struct{})
		s.await()
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
	if s.ended.Load() {
		return context.Canceled
	}
	return nil
}

// callerRound is a round context that also ends with the ctx of a caller who waits for a step.
// Being told of the caller's end costs more than the rest of a round context, so it is arranged
// only when somebody waits for the round context: a step that goes with others does not.
type callerRound struct {
	*roundContext
	caller context.Context

	mu   sync.Mutex // guards what follows; nothing that blocks is called while it is held
	stop func() bool
	left bool
}

// attend has the round context end when the caller's ctx does.
func (a *callerRound) attend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop == nil && !a.left {
		a.stop = context.AfterFunc(a.caller, a.end)
	}
}

func (a *callerRound) Done() <-chan struct{} {
	a.attend()
	return a.roundContext.Done()
}

// AfterFunc is that of the round context.
func (a *callerRound) AfterFunc(f func()) (stop func() bool) {
	a.attend()
	return a.roundContext.AfterFunc(f)
}

func (a *callerRound) Err() error {
	if a.caller.Err() != nil {
		a.end()
	}
	return a.roundContext.Err()
}

// leave makes the round context depend on the caller no longer.
func (a *callerRound) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	if a.stop != nil {
		a.stop()
	}
}
