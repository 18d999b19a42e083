package redlatch

import (
	"fmt"
	"time"
)

// beginTerm has the lock be one under which Campaign is about to run something.
func (l *Lock) beginTerm() {
	l.work = make(chan struct{})
	l.Context() // so that there is one to be ended
}

// endTerm says that it has returned.
func (l *Lock) endTerm() { close(l.work) }

// awaitWork ends the context of a lead when the client is being closed, and returns when what runs
// under it has returned, or can rely on it no more. Of other locks it does nothing.
func (l *Lock) awaitWork() {
	if l.work == nil {
		return
	}
	// rule: lead-until-returned
	l.tell(fmt.Errorf("%w: %w", ErrReleased, ErrClosed))
	for {
		// A renewal that was under way may have come meanwhile.
		left := l.client.clock.Now().Until(l.lease.Until())
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-l.work:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
