package quorum

import (
	"context"
	"sync"
)

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
