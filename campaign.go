package redlatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Campaign waits until it leads name, which is to hold the lock of that name, and runs fn. The ctx
// of fn is done when ctx is, or when the lead is lost: context.Cause tells which, and fn must then
// stop before the guard (WithGuard) is over. Held(ctx, name) has the lock; its Token is the number
// of the term, larger for every later leader.
//
// The lead is held for as long as fn runs, whatever MaxHold says, and released when fn has returned
// and not before, also where ctx is done. An fn that hangs leads for ever. Close ends the ctx of
// fn, and waits until fn has returned or the validity is over.
//
// When the lead is lost, Campaign waits until fn has returned, and campaigns again if fn returned
// because of the loss: nil, or an error in which errors.Is finds ErrLost or context.Canceled. Any
// other error is fn's own: Campaign returns it, joined with ErrLost. Where the lead is not lost, or
// ctx is done, it returns what Do does when fn has returned: fn's error, joined with that of the
// release. A panic or runtime.Goexit of fn releases the lead and goes on.
//
// Waiting is that of Lock, and so are its errors: ctx ends it, and what waiting does not cure is
// returned at once. Options are those of Lock, but WithMaxHold and WithoutRenewal are ErrInvalid.
// When Campaign has returned, nothing is held, and no place in the wait queue is kept. It is safe
// for concurrent use.
//
// At most one leads as long as a lock has at most one holder (package documentation). What must not
// be done by a leader that does not know yet that it is none any more, the resource refuses by its
// token.
func (c *Client) Campaign(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	if fn == nil {
		return invalid("fn is nil: pass the function to run while leading")
	}
	options = append(slices.Clip(options), func(r *settings) { r.leading = true })
	for {
		again, err := c.lead(ctx, name, fn, options)
		if !again {
			return err
		}
	}
}

// lead waits for the lead and runs fn once. again: the lead was lost, and fn returned for that.
func (c *Client) lead(ctx context.Context, name string, fn func(ctx context.Context) error, options []Option) (again bool, err error) {
	lock, err := c.lock(ctx, bound, name, true, options)
	if err != nil {
		return false, err
	}
	// Deferred, so that a panic or runtime.Goexit of fn releases the lead on its way.
	defer func() {
		lock.endTerm()
		stopped := err == nil || errors.Is(err, ErrLost) || errors.Is(err, context.Canceled)
		again = stopped && errors.Is(lock.Err(), ErrLost) && ctx.Err() == nil
		// rule: lead-until-returned
		if released := lock.Unlock(ctx); !again {
			err = errors.Join(err, released)
		}
	}()
	if err := lock.Err(); err != nil {
		return false, err // before fn began
	}
	return false, fn(lock.Context())
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
