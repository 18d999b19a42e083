package redlatch

import "context"

// lockContext is the context of a held lock. It asks the lock whenever it is asked
// itself: a timer may be late, in a process that was stopped or starved, but a
// holder that looks must never be told that it holds what has run out.
type lockContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc
}

func newLockContext(parent context.Context, l *Lock) *lockContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &lockContext{Context: ctx, lock: l, cancel: cancel}
}

// Done returns a channel that is closed already when the validity is over by the clock.
// Contexts derived from c end when c does, and do not ask.
func (c *lockContext) Done() <-chan struct{} {
	c.lock.Err()
	return c.Context.Done()
}

func (c *lockContext) Err() error {
	c.lock.Err()
	return c.Context.Err()
}

// Value is what context.Cause calls on its way to the cause.
func (c *lockContext) Value(key any) any {
	c.lock.Err()
	return c.Context.Value(key)
}
