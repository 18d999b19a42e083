package redlatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// Lock acquires the lock name, and waits in the wait queue until it holds it or ctx is done
// (package documentation, "Waiting"). When ctx is done the caller is out of the
// queue. The lock is renewed in the background unless an option says otherwise, until it is
// unlocked, lost, or MaxHold has passed.
//
// ctx ends the waiting and nothing else: a lock once acquired is not bound to
// it. The values of ctx are those of Lock.Context.
//
// Errors: when ctx is done first, errors.Is finds its cause and what stood in
// the way, ErrHeld, ErrNoQuorum or ErrNotAdmitted, and errors.As a *QuorumError
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
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, false, options)
}

// Do runs fn while holding the lock name, for which it waits as Lock does. The
// ctx of fn is done when ctx is, or when the lock is lost: context.Cause tells,
// and fn must then stop before the end of the guard. Do returns fn's error,
// joined with ErrLost when the lock was lost before fn returned, or with the
// error of the release. A panic or runtime.Goexit of fn releases the lock and goes on.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, true, options)
}

// TryDo runs fn if the lock name is free, as Do does, and makes one try as TryLock does.
// Where another holds it fn is not called, and errors.Is finds ErrHeld at once; so it is
// with the other errors of TryLock. From fn on everything is as with Do.
//
// With WithMinHold it runs a job once that several machines start at the same time.
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

// binding is what the ctx of a call has to say to the lock's own context.
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
	call := &call{client: c, ctx: ctx, binding: b, name: name, key: key}
	if err := c.settings(&call.settings, options); err != nil {
		return nil, err
	}
	if c.logs(slog.LevelDebug) {
		call.site = callSite()
	}
	switch {
	case !wait:
		return call.once()
	case call.settings.queue:
		return call.queue()
	}
	return call.insist()
}

// checkContext refuses a ctx that is nil.
func checkContext(ctx context.Context) error {
	return check(ctx != nil, "ctx is nil: pass context.Background() or the request's context")
}

// call is one call of Lock, TryLock, Do or TryDo. What it asks for does not change.
type call struct {
	client   *Client
	ctx      context.Context
	binding  binding
	name     string
	key      string
	settings settings
	// failure is what stood in the way of the last whole try, and reported when it
	// was last reported.
	failure  *QuorumError
	reported time.Time
	// waited is nil while the log has no part in it.
	waited *waitLog
	// site is where the program made the call, "" unless the log takes Debug.
	site string
	// failed counts the tries of the present turn in the queue.
	failed int
	// lock is what the call acquires. It is part of it, which saves an allocation.
	lock Lock
}

// may returns an error when no further try may be made.
func (c *call) may() error {
	switch {
	case c.ctx.Err() != nil:
		return c.ended()
	case c.client.life.Err() != nil:
		return c.closed()
	}
	return c.client.usable()
}

// splitTries is how often a call that does not wait tries again where the votes were split.
const splitTries = 6

// once makes one try, and others where votes were split: else of several who try at the same
// moment, all may be told that another has the lock.
func (c *call) once() (*Lock, error) {
	for try := 0; ; try++ {
		if err := c.may(); err != nil {
			return nil, err
		}
		lock, err := c.try(c.request())
		if lock != nil {
			c.client.queues.acquired(lock, false, false)
			return lock, nil
		}
		if try == splitTries || c.final() || !c.failure.split() {
			return nil, err
		}
		if err := c.sleep(c.client.pause(c.failure, try)); err != nil {
			return nil, err
		}
	}
}

// insist makes tries at random times until one holds, and barges in before those
// who are queued.
func (c *call) insist() (*Lock, error) {
	for try := 0; ; try++ {
		if err := c.may(); err != nil {
			return nil, err
		}
		request := c.request()
		request.Barge = true
		lock, err := c.try(request)
		if lock != nil {
			c.client.queues.acquired(lock, false, false)
		}
		if lock != nil || c.final() {
			return lock, err
		}
		c.report()
		if err := c.sleep(c.client.pause(c.failure, try)); err != nil {
			return nil, err
		}
	}
}

// final reports that the last try's failure cannot be waited out.
func (c *call) final() bool { return c.ctx.Err() != nil || errors.Is(c.failure.kind, ErrRefused) }

// sleep returns after d, or an error when the call is over before.
func (c *call) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.ended()
	case <-c.client.life.Done():
		return c.closed()
	}
}

// report tells whoever wants to know why the call waits, about once a second, and the log.
func (c *call) report() {
	if c.failure == nil {
		return
	}
	c.logWait()
	if c.settings.report != nil && time.Since(c.reported) > time.Second {
		c.reported = time.Now()
		c.settings.report(c.failure)
	}
}

// ended is the error of a call whose ctx ended, with what stood in the way if
// that is known.
func (c *call) ended() error {
	if c.failure == nil {
		return fmt.Errorf("lock %q: %w", c.name, context.Cause(c.ctx))
	}
	return fmt.Errorf("%w; %w", context.Cause(c.ctx), c.failure)
}

// closed is the error of a call whose client was closed.
func (c *call) closed() error {
	if c.failure == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w; %w", ErrClosed, c.failure)
}

// request is what the call's next attempt asks for.
func (c *call) request() vote.Acquire { return c.client.request(c.key, &c.settings) }

// request is what an attempt asks for that begins now, under a holder id of its own.
func (c *Client) request(key string, s *settings) vote.Acquire {
	now := c.clock.Wall()
	// rule: fresh-holder-id
	return vote.Acquire{
		Key: key, ID: c.newHolderID(now, s.label), TTL: c.firstTTL(s), Proposed: uint64(now.UnixMicro()),
	}
}

// try makes one attempt.
func (c *call) try(request vote.Acquire) (*Lock, error) {
	c.client.counters.tries.Add(1)
	lease, votes := c.client.engine.Acquire(c.ctx, request)
	if lease != nil {
		return c.hold(turnOf(lease)), nil
	}
	if c.failure == nil || c.ctx.Err() == nil {
		// One that ctx cut short says less than the one before.
		c.failure = newQuorumError("lock", c.name, c.client.answers(votes))
	}
	if c.ctx.Err() != nil {
		return nil, c.ended()
	}
	return nil, c.failure
}

// hold is the lock that the call has acquired.
func (c *call) hold(t turn) *Lock {
	c.client.counters.acquired.Add(1)
	return c.client.newLock(c, t)
}

// The shortest and the longest of the mean pauses between two tries.
const (
	firstPause = 8 * time.Millisecond
	lastPause  = firstPause << 5
)

// pause is the time to the next try: drawn at random, so that those whose votes
// split do not meet again (Redis documentation, "Distributed locks with Redis",
// retry on failure), longer with each try, and no longer than the lock in the
// way runs.
func (c *Client) pause(failure *QuorumError, try int) time.Duration {
	longest := lastPause
	if try < 5 {
		longest = firstPause << try
	}
	d := longest/2 + c.draw(longest)
	if _, left, ok := failure.Holder(); ok && left >= 0 {
		d = min(d, left+c.draw(firstPause))
	}
	return d
}
