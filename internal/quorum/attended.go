package quorum

import (
	"context"
	"sync"
)

// attended is a span of which a caller waits for the end of a step, and so ends with
// the caller's ctx, too. To be told of that costs more than the rest of a span, so it
// begins when somebody waits for the span: a step that goes with others does not.
type attended struct {
	*span
	caller context.Context

	mu   sync.Mutex // guards what follows; nothing that blocks is called while it is held
	stop func() bool
	left bool
}

// attend has the caller's end told to the span.
func (a *attended) attend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop == nil && !a.left {
		a.stop = context.AfterFunc(a.caller, a.end)
	}
}

func (a *attended) Done() <-chan struct{} {
	a.attend()
	return a.span.Done()
}

// AfterFunc is the span's.
func (a *attended) AfterFunc(f func()) (stop func() bool) {
	a.attend()
	return a.span.AfterFunc(f)
}

func (a *attended) Err() error {
	if a.caller.Err() != nil {
		a.end()
	}
	return a.span.Err()
}

// leave has the span no longer depend on the caller.
func (a *attended) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	if a.stop != nil {
		a.stop()
	}
}
