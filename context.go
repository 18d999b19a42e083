package redlatch

import (
	"context"
	"slices"
)

// Context returns a context that is done when the lock is lost or released. context.Cause then is
// an error that wraps ErrLost or ErrReleased. The lock is lost, by the local clock and whatever the
// network does, when its validity has run out but for the guard. It is lost earlier if so many
// nodes have said that they do not hold it that no quorum is left.
//
// Done and Err of the context look at the clock, so a process that was stopped finds the lock lost
// before any timer has fired. A goroutine that waits for Done already, and contexts derived from
// this one, learn of the loss when somebody looks, or by a timer: some milliseconds later, in a
// process that was stopped. Call Err of the lock, or of this context, before a step that must not
// come too late.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	c := l.context
	l.mu.Unlock()
	if c != nil {
		return c
	}
	// l.mu is free meanwhile: the parent may be another lock's context, which may find that lock
	// lost and tell the Observer.
	made := newLockContext(l.call.binding.parent(l.call.ctx), l)
	l.mu.Lock()
	if l.context == nil {
		l.context = made
	}
	c = l.context
	l.mu.Unlock()
	if c != made {
		made.cancel(nil)
	}
	return c
}

// binding is what the lock's context takes from the ctx of the call.
type binding bool

const (
	detached binding = false // its values
	bound    binding = true  // its values and its end
)

func (b binding) parent(ctx context.Context) context.Context {
	if b == bound {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// lockContext is the context of a held lock. It asks the lock whenever it is asked itself: in a
// process that was stopped or starved a timer may be late, but a holder that looks must never be
// told that it holds a lock that has run out.
type lockContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc
}

func newLockContext(parent context.Context, l *Lock) *lockContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &lockContext{Context: ctx, lock: l, cancel: cancel}
}

// look ends c if the lock is over. Another goroutine may have found that out first and not have come
// to ending c.
func (c *lockContext) look() {
	if why := c.lock.Err(); why != nil {
		c.cancel(why)
	}
}

// Done returns a channel that is already closed if the validity is over by the clock. Contexts
// derived from c end when c does, and do not ask.
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
	if key == (heldKey{}) {
		return c
	}
	c.look()
	return c.Context.Value(key)
}

// heldKey is the key under which a context carries the last of the locks under which it was made.
type heldKey struct{}

// held returns the last of the locks that ctx carries that is held and for which one returns true.
func held(ctx context.Context, one func(*Lock) bool) (*Lock, bool) {
	for {
		c, ok := ctx.Value(heldKey{}).(*lockContext)
		switch {
		case !ok:
			return nil, false
		case one(c.lock) && c.lock.Err() == nil:
			return c.lock, true
		}
		ctx = c.Context
	}
}

// Held returns the lock name that ctx carries, if it is held by the local clock. ctx is
// Lock.Context, or the ctx that Do, TryDo or Campaign passes to fn, or was made from one of these,
// also by context.WithoutCancel and for another goroutine. If ctx carries locks of that name of
// several clients, Held returns the one that was acquired last. It never returns a permit. It asks
// no node and does not block.
//
// A function that needs a lock which its caller may have already asks Held and, if ok, goes on
// without locking: Client.Lock refuses to wait for a lock that its ctx carries.
func Held(ctx context.Context, name string) (lock *Lock, ok bool) {
	return held(ctx, func(l *Lock) bool {
		return l.call.permits == nil && l.call.name == name || l.call.several != nil && slices.Contains(l.call.several.names, name)
	})
}
