package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/node"
)

// Lock acquires the lock name, and waits until it holds it or ctx is done. The
// lock is renewed in the background unless an option says otherwise, until it is
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

// TryLock makes one try for the lock name. It waits for one step on the nodes,
// NodeTimeout at most, or two in the rare case that they disagree about the
// fencing token. Errors are those of Lock, at once.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, false, options)
}

// Do runs fn while holding the lock name, for which it waits as Lock does. The
// ctx of fn is done when ctx is, or when the lock is lost: context.Cause tells,
// and fn must then stop before the end of the guard. Do returns fn's error,
// joined with ErrLost when the lock was lost before fn returned, or with the
// error of the release.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) (err error) {
	lock, err := c.lock(ctx, bound, name, true, options)
	if err != nil {
		return err
	}
	// Deferred, so that a panic of fn releases the lock on its way.
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

// lock makes tries until one holds.
func (c *Client) lock(ctx context.Context, b binding, name string, wait bool, options []Option) (*Lock, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	record, err := c.record(name)
	if err != nil {
		return nil, err
	}
	r, err := c.request(options)
	if err != nil {
		return nil, err
	}
	var reported time.Time
	var failure *QuorumError // what stood in the way of the last whole try
	for try := 0; ; try++ {
		if err := c.usable(); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ended(ctx, name, failure)
		}
		lock, outcome := c.try(ctx, b, name, record, r)
		if outcome == nil {
			return lock, nil
		}
		if failure == nil || ctx.Err() == nil {
			failure = outcome // one that ctx cut short says less than the one before
		}
		switch {
		case ctx.Err() != nil:
			return nil, ended(ctx, name, failure)
		case !wait || errors.Is(failure.kind, ErrRefused):
			return nil, failure
		}
		if r.report != nil && time.Since(reported) > time.Second {
			reported = time.Now()
			r.report(failure)
		}
		select {
		case <-time.After(c.pause(failure, try)):
		case <-ctx.Done():
			return nil, ended(ctx, name, failure)
		case <-c.life.Done():
			return nil, fmt.Errorf("%w; %w", ErrClosed, failure)
		}
	}
}

// ended is the error of a call whose ctx ended, with what stood in the way if a
// try was made.
func ended(ctx context.Context, name string, failure *QuorumError) error {
	if failure == nil {
		return fmt.Errorf("lock %q: %w", name, context.Cause(ctx))
	}
	return fmt.Errorf("%w; %w", context.Cause(ctx), failure)
}

// try makes one attempt, under a holder id of its own.
func (c *Client) try(ctx context.Context, b binding, name, record string, r request) (*Lock, *QuorumError) {
	c.counters.tries.Add(1)
	id := newHolderID(c.clock.Wall(), r.label)
	hold, votes := c.engine.Acquire(ctx, ballot.Claim{Record: record, Counter: node.CounterKey(record), ID: id, TTL: r.ttl})
	if hold == nil {
		return nil, newQuorumError("lock", name, c.answers(votes))
	}
	c.counters.acquired.Add(1)
	return c.newLock(ctx, b, name, hold, r), nil
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
