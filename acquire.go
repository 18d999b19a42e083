package redlatch

import (
	"context"
	"errors"
	"log/slog"
)

// Lock acquires the lock name, and waits in the wait queue until it holds it or ctx is done
// (package documentation, "Waiting"). When ctx is done the caller has left the
// queue. The lock is renewed in the background unless an option says otherwise, until it is
// unlocked, lost, or MaxHold has passed.
//
// ctx ends the waiting only: an acquired lock does not end with it. Lock.Context has the
// values of ctx.
//
// If ctx carries a lock of this client and name that is held (Held), Lock would wait for its own
// caller, and returns ErrInvalid at once. A goroutine that is to wait until others have released
// that lock needs a ctx that was not made under it. What context.WithoutCancel makes of the lock's
// still carries it. Locks that were lost, released or detached are in nobody's way.
//
// Errors: when ctx is done first, errors.Is finds its cause and what stood in
// the way, ErrHeld, ErrNoQuorum, ErrNotAdmitted or ErrOverloaded, and errors.As a *QuorumError
// with each node's answer. What waiting cannot cure is returned at once:
// ErrRefused, ErrInvalid, ErrClosed. After any error nothing is held, and what
// a failed try may have left on a node is being removed.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, options)
}

// TryLock makes one try for the lock name. Where several try at the same moment each may get
// the votes of some nodes, and nobody the lock: then it tries again at random times, six
// times within half a second at most.
//
// A try waits for one step on the nodes, NodeTimeout at most, or for two in the rare case
// that no quorum of them agrees about the fencing token, or for ctx. With
// Config.Replicas a step takes up to twice its Timeout more. A lock that the nodes grant later
// than 2 s after the start of the try, because this process was held up, is given back, and the
// try has failed. Errors are those of Lock, at once. Where many callers lock at the same
// time, the steps of several go in one command: on a single node that command is waited
// for even when ctx is done, NodeTimeout at most.
//
// It does not wait, so it may be called also where ctx carries the lock (Held): the error is ErrHeld.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, false, options)
}

// Do runs fn while holding the lock name, for which it waits as Lock does. The
// ctx of fn is done when ctx is, or when the lock is lost: context.Cause
// tells which, and fn must then stop before the guard (WithGuard) is over. Do returns fn's error,
// joined with ErrLost when the lock was lost before fn returned, or with the
// error of the release. A panic or runtime.Goexit of fn releases the lock and goes on.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, true, options)
}

// TryDo runs fn if the lock name is free, as Do does, and makes one try as TryLock does.
// If another holds the lock, TryDo returns at once without calling fn, and errors.Is finds
// ErrHeld; the same goes for the other errors of TryLock. All else is as with Do.
//
// With WithMinHold, a job that several machines start at the same time runs once.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, false, options)
}

// do runs fn under the lock: after one try, or when it has waited for it.
func (c *Client) do(ctx context.Context, name string, fn func(ctx context.Context) error, wait bool, options []Option) (err error) {
	if fn == nil {
		return invalid("fn is nil: pass the function to run while the lock is held")
	}
	lock, err := c.lock(ctx, bound, name, wait, options)
	if err != nil {
		return err
	}
	// Deferred, so that a panic or runtime.Goexit of fn releases the lock on its way.
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }()
	return fn(lock.Context())
}

// lock makes one try, or tries until one holds.
func (c *Client) lock(ctx context.Context, b binding, name string, wait bool, options []Option) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	key, err := c.config.key(name)
	if err != nil {
		return nil, err
	}
	call := &call{client: c, ctx: ctx, binding: b, name: name, key: key, observed: c.observed()}
	if err := c.settings(&call.settings, options); err != nil {
		return nil, err
	}
	if call.settings.also != nil {
		if err := call.gather(); err != nil {
			return nil, err
		}
	}
	if call.settings.shared {
		if err := call.refuseShared(wait); err != nil {
			return nil, err
		}
	}
	if call.settings.permits != nil {
		if err := call.permit(); err != nil {
			return nil, err
		}
	}
	if wait {
		if err := call.refuseHeld(); err != nil {
			return nil, err
		}
	}
	if c.logs(slog.LevelDebug) {
		call.site = callSite()
	}
	switch {
	case !wait || !call.settings.queue:
		err = call.insist(wait)
	case call.settings.shared:
		err = c.waitqueue.WaitShared(ctx, call)
	case call.several != nil:
		err = call.lockAll()
	case call.permits != nil:
		err = c.waitqueue.WaitPermit(ctx, call)
	default:
		err = c.waitqueue.Wait(ctx, call)
	}
	if err != nil {
		call.failed(err)
		return nil, err
	}
	return &call.lock, nil
}

// refuseHeld returns an error where its ctx carries the very lock that the call is to wait for, or one
// that has a name of it.
func (c *call) refuseHeld() error {
	// rule: no-wait-for-itself
	_, is := held(c.ctx, func(l *Lock) bool { return l.client == c.client && l.call.overlaps(c) })
	switch {
	case is && c.permits != nil:
		return invalid("a permit of %q: the ctx of this very call carries one, and callers who each hold one and wait for another would wait for each other: use the one that is held, TryLock, or a ctx that was not made under it", c.name)
	case is:
		return invalid("lock %q: it is held by this very call, whose ctx carries it, and which would wait for itself: ask Held and go on without, or pass a ctx that was not made under the lock", c.name)
	}
	return nil
}

// splitTries is how often a call that does not wait tries again where the votes were split.
const splitTries = 6

// insist makes tries without a place in the wait queue. One that waits makes them at random times
// until one holds, and barges in before those who are queued. One that does not makes others
// only where votes were split: else of several who try at the same moment, all may be told that
// another has the lock.
func (c *call) insist(wait bool) error {
	for try := 0; ; try++ {
		if err := c.May(); err != nil {
			return err
		}
		request := c.Request()
		request.Barge = wait
		lease, failure := c.Try(request)
		switch {
		case lease != nil:
			if h := c.Hold(lease); !c.settings.shared && c.permits == nil {
				c.client.waitqueue.Acquired(h)
			}
			return nil
		case failure.Final, !wait && (try == splitTries || !c.failure.split()):
			return failure.Err
		case wait:
			c.Report()
		}
		if err := c.Rest(try); err != nil {
			return err
		}
	}
}
