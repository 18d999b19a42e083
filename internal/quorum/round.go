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
func (r *roundContext) begin(e *Engine, start time.Time, limit time.Duration) {
	r.began = start
	e.clock.SetFrom(&r.alarm, start, limit, r)
}

// prolong makes the round context end limit after it began, if it has not ended yet.
func (r *roundContext) prolong(limit time.Duration) { r.alarm.ResetSince(r.began, limit) }

// unlimit makes the round context end only when it is told to.
func (r *roundContext) unlimit() { r.alarm.Stop() }

// Ring implements clock.Ringer.
func (r *roundContext) Ring() { r.end() }

func (r *roundContext) end() {
	if !r.ended.CompareAndSwap(false, true) {
		return
	}
	r.alarm.Stop()
	r.mu.Lock()
	if r.over != nil {
		close(r.over)
	}
	follow := r.follow
	r.follow = nil
	r.mu.Unlock()
	for _, f := range follow {
		if f != nil {
			f()
		}
	}
}

func (r *roundContext) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over == nil {
		if r.ended.Load() {
			return closed // end sets ended before it looks for over
		}
		r.over = make(chan struct{})
	}
	return r.over
}

// closed is a closed channel.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// AfterFunc is what context.AfterFunc is for other contexts, except that f must not block, and that
// it is called by whoever ends the round context, if that has not ended yet.
func (r *roundContext) AfterFunc(f func()) (stop func() bool) {
	r.mu.Lock()
	if r.ended.Load() {
		r.mu.Unlock()
		go f() // as in package context: the caller may hold what f wants
		return func() bool { return false }
	}
	i := len(r.follow)
	if i == 0 {
		r.follow = r.first[:0]
	}
	r.follow = append(r.follow, f)
	r.mu.Unlock()
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i >= len(r.follow) || r.follow[i] == nil {
			return false
		}
		r.follow[i] = nil
		return true
	}
}

func (r *roundContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (r *roundContext) Value(any) any               { return nil }

func (r *roundContext) Err() error {
	if r.ended.Load() {
		return context.Canceled
	}
	return nil
}
