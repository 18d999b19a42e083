package redlatch

import "context"

// lease is the context of a held lock. It asks the lock whenever it is asked
// itself: a timer may be late, in a process that was stopped or starved, but a
// holder that looks must never be told that it holds what has run out.
type lease struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc
}

func newLease(parent context.Context, l *Lock) *lease {
	ctx, cancel := context.WithCancelCause(parent)
	return &lease{Context: ctx, lock: l, cancel: cancel}
}

// Done returns a channel that is closed already when the validity is over by the clock.
// Contexts derived from c end when c does, and do not ask.
func (c *lease) Done() <-chan struct{} {
	c.lock.Err()
	return c.Context.Done()
}

func (c *lease) Err() error {
	c.lock.Err()
	return c.Context.Err()
}

// Value is what context.Cause calls on its way to the cause.
func (c *lease) Value(key any) any {
	c.lock.Err()
	return c.Context.Value(key)
}
