package quorum

import (
	"context"
	"sync"
)

// callerRound is a round context of which a caller waits for the end of a step, and so ends with
// the caller's ctx, too. To be told of that costs more than the rest of a round context, so it
// begins when somebody waits for the round context: a step that goes with others does not.
type callerRound struct {
	*roundContext
	caller context.Context

	mu   sync.Mutex // guards what follows; nothing that blocks is called while it is held
	stop func() bool
	left bool
}

// attend has the caller's end told to the round context.
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

// AfterFunc is the round context's.
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

// leave has the round context no longer depend on the caller.
func (a *callerRound) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	if a.stop != nil {
		a.stop()
	}
}
