package legacy

import "context"

// lockContext is the context of a lock. It asks the lock whenever it is asked itself: in a process
// that was stopped or starved a timer may be late, and another goroutine may have found the lock
// lost and not have come to ending the context.
type lockContext struct {
	context.Context
	parent context.Context // that of the new lock, in a Pair
	lock   *Lock
}

func (c *lockContext) look() {
	if why := c.lock.Err(); why != nil {
		c.lock.cancel(why)
	}
	_ = c.parent.Err() // it looks as well, and ends c with itself
}

// Done returns a channel that is closed already if the lock is over by the clock.
func (c *lockContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *lockContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Value asks the lock too, as context.Cause calls Value on its way to the cause.
func (c *lockContext) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}
