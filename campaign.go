package redlatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Campaign waits until it leads name, and runs fn. To lead is to hold the lock name. The ctx of fn
// is done when ctx is done or when the lead is lost. context.Cause tells which, and fn must then
// stop before the guard (WithGuard) is over. Held(ctx, name) returns the lock; its Token is the
// number of the term, which is larger for every later leader.
//
// Campaign holds the lead for as long as fn runs, whatever MaxHold says, and releases it only when
// fn has returned, even if ctx is done. An fn that hangs leads for ever. Close ends the ctx of fn,
// and waits until fn has returned or the validity is over.
//
// When the lead is lost, Campaign waits until fn has returned. It campaigns again if fn returned
// because of the loss: with nil, or with an error in which errors.Is finds ErrLost or
// context.Canceled. Any other error is fn's own: Campaign returns it, joined with ErrLost. If the
// lead was not lost, or ctx is done, Campaign returns what Do returns: fn's error, joined with that
// of the release. If fn panics or calls runtime.Goexit, Campaign releases the lead, and the panic
// or the exit goes on.
//
// Campaign waits as Lock does, with the same errors: ctx ends the waiting, and errors that waiting
// does not cure are returned at once. The options are those of Lock, except WithMaxHold,
// WithoutRenewal, WithShared and WithPermits, which are ErrInvalid. When Campaign has returned, it
// holds nothing and is leaving the wait queue. It is safe for concurrent use.
//
// At most one client leads, under the conditions under which a lock has at most one holder (package
// documentation). A leader may not know yet that it leads no more. What it must not do then, the
// resource has to refuse by its token.
func (c *Client) Campaign(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	if fn == nil {
		return invalid("fn is nil: pass the function to run while leading")
	}
	options = append(slices.Clip(options), func(s *settings) { s.leading = true })
	for {
		again, err := c.lead(ctx, name, fn, options)
		if !again {
			return err
		}
	}
}

// lead waits for the lead and runs fn once. again reports that the lead was lost and fn returned
// because of that.
func (c *Client) lead(ctx context.Context, name string, fn func(ctx context.Context) error, options []Option) (again bool, err error) {
	lock, err := c.lock(ctx, bound, name, true, options)
	if err != nil {
		return false, err
	}
	// This is deferred, so that the lead is also released when fn panics or calls runtime.Goexit.
	defer func() {
		defer lock.endTerm() // last, or Close could release the lead before Unlock, which tells what came of it
		stopped := err == nil || errors.Is(err, ErrLost) || errors.Is(err, context.Canceled)
		again = stopped && errors.Is(lock.Err(), ErrLost) && ctx.Err() == nil
		// rule: lead-until-returned
		err = join(err, lock.Unlock(ctx))
	}()
	if lock.Err() != nil {
		return false, nil // Unlock returns it
	}
	return false, fn(lock.Context())
}

// endTerm says that the work under the lead has returned and the lead is released.
func (l *Lock) endTerm() { close(l.work) }

// awaitWork ends the context of a lead because the client is being closed. It returns when the work
// under the lead has returned and the lead is released, or when the work cannot rely on it any more.
func (l *Lock) awaitWork() {
	// rule: lead-until-returned
	l.endContext(fmt.Errorf("%w: %w", (*releasedError)(l), ErrClosed))
	for {
		// A renewal that was under way may have succeeded meanwhile.
		left := l.client.clock.Now().Until(l.lease.Until())
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(left, sleepCheck)) // which sleeps with the machine
		select {
		case <-l.work:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
