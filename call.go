package redlatch

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// call is one call that acquires a lock. What it asks for does not change.
type call struct {
	client  *Client
	ctx     context.Context
	binding binding
	name    string
	key     string
	// several is nil unless the lock has several names; key is then the key of one of them.
	several *several
	// whole is the call for several names for which this call takes one of the names, or nil.
	whole *call
	// permits is nil unless the call is for a permit; key is then the key of the queue for all of
	// them.
	permits  *permits
	settings settings
	// failure is what stood in the way of the last try that was not cut short. reported is when it
	// was last reported.
	failure  *QuorumError
	reported time.Time
	// waited is what the log was told of the wait, nil before the first report.
	waited   *waitLog
	observed *observed
	// site is where the program made the call, "" unless the log takes Debug.
	site string
	// lock is what the call acquires. As a field of the call it saves an allocation.
	lock Lock
}

// Key implements waitqueue.Caller.
func (c *call) Key() string { return c.key }

// May returns an error if the call may make no further try.
func (c *call) May() error {
	if c.ctx.Err() != nil || c.client.life.Err() != nil {
		return c.Ended()
	}
	return c.client.usable()
}

// Rest returns after a random pause, which grows with failures, the number of tries that failed
// before the last one. It returns an error if the call is over before.
func (c *call) Rest(failures int) error {
	timer := time.NewTimer(c.client.pause(c.failure, failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
	case <-c.client.life.Done():
	}
	return c.Ended()
}

// Ended returns the error of a call whose ctx ended, or whose client was closed, with what stood in
// the way if that is known.
func (c *call) Ended() error {
	why := ErrClosed
	if c.ctx.Err() != nil {
		why = context.Cause(c.ctx)
	}
	if c.failure == nil {
		return fmt.Errorf("lock %q: %w", c.name, why)
	}
	return fmt.Errorf("%w; %w", why, c.failure)
}

// Request returns the request of an attempt that begins now, under a holder id of its own, and counts
// the attempt.
func (c *call) Request() vote.Acquire {
	c.client.counters.tries.Add(1)
	c.observed.try()
	now := c.client.clock.Wall()
	// rule: fresh-holder-id
	request := vote.Acquire{
		Key: c.key, ID: c.client.newHolderID(now, c.settings.label), TTL: c.settings.firstTTL, Proposed: proposed(now),
	}
	switch {
	case c.several != nil:
		request.With = c.several.without(c.key)
	case c.settings.shared:
		request.Shared, request.Arbiters = true, c.client.waitqueue.Order(c.key)
	}
	return request
}

// proposed returns the counter that an attempt proposes which begins at now. The scripts count with
// doubles. Of a number beyond 2^53, from a clock that is centuries off, they could not tell how long
// its block is, and would begin the block at a number that was given before.
func proposed(now time.Time) uint64 {
	return uint64(min(max(now.UnixMicro(), 0), script.MaxCounter-math.MaxUint8))
}

// maxAttempts bounds the attempts that a client has under way. More at once are granted no faster, and
// where they are too many for the processors all are late, so that hardly any is granted. Renewals find
// room beside them on a connection (package node, maxInFlight). Measured on two processors, over three
// nodes, with 64 to 3000 callers.
const maxAttempts = 256

var errManyAttempts = fmt.Errorf("%d attempts of this client are under way", maxAttempts)

// Try makes one attempt, when fewer than maxAttempts are under way.
func (c *call) Try(request vote.Acquire) (*quorum.Lease, waitqueue.Failure) {
	if r := c.renewer(); r != nil && r.Overloaded() {
		c.failure = newOverloadError(c.name, c.client.answers(nil))
		return nil, waitqueue.Failure{Err: c.failure, Unsent: true}
	}
	select {
	case c.client.attempts <- struct{}{}:
	default:
		if err := c.awaitOthers(); err != nil {
			return nil, waitqueue.Failure{Err: err, Final: true}
		}
		request.Proposed = proposed(c.client.clock.Wall()) // the attempt begins now
	}
	defer func() { <-c.client.attempts }()
	var lease *quorum.Lease
	var votes []vote.Answer
	if c.permits == nil {
		lease, votes = c.client.engine.Acquire(c.ctx, request)
	} else {
		lease, votes = c.tryPermit(request)
	}
	return c.tried(request, lease, votes)
}

// awaitOthers waits until an attempt may begin, in the order of the callers. It returns an error if the
// call is over before.
func (c *call) awaitOthers() error {
	select {
	case c.client.attempts <- struct{}{}:
		return nil
	case <-c.ctx.Done():
	case <-c.client.life.Done():
	}
	if c.failure == nil {
		votes := make([]vote.Answer, len(c.client.nodes))
		for i := range votes {
			votes[i] = vote.Answer{Verdict: vote.NotSent, Err: errManyAttempts}
		}
		c.failure = newQuorumError("lock", c.name, c.client.answers(votes))
	}
	return c.Ended()
}

// tried turns the outcome of the attempt for request into what the wait queue is told.
func (c *call) tried(request vote.Acquire, lease *quorum.Lease, votes []vote.Answer) (*quorum.Lease, waitqueue.Failure) {
	if lease != nil {
		return lease, waitqueue.Failure{}
	}
	elsewhere := false
	if c.failure == nil || c.ctx.Err() == nil {
		// An attempt that ctx cut short says less than the one before it.
		c.failure = newQuorumError("lock", c.name, c.client.answers(votes))
		elsewhere = c.several != nil && c.follow(request, votes)
		c.failure = c.named(c.failure)
	}
	if c.ctx.Err() != nil {
		return nil, waitqueue.Failure{Err: c.Ended(), Final: true}
	}
	return nil, waitqueue.Failure{Err: c.failure, Held: c.failure.kind == ErrHeld, Final: c.failure.kind == ErrRefused, Elsewhere: elsewhere}
}

// The shortest and the longest of the mean pauses between two tries.
const (
	firstPause = 8 * time.Millisecond
	lastPause  = firstPause << 5
)

// pause returns the time until the next try. It is drawn at random, so that callers whose votes
// were split do not meet again (Redis documentation, "Distributed locks with Redis", retry on
// failure). It is longer with each try, and no longer than the lock in the way runs.
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

// Hold makes the call's lock held by lease, and begins to renew it.
func (c *call) Hold(lease *quorum.Lease) *waitqueue.Holder {
	client, l := c.client, &c.lock
	l.client, l.call, l.lease = client, c, lease
	l.holder = waitqueue.Holder{Caller: c}
	if c.settings.leading {
		l.work = make(chan struct{})
		l.Context() // so that awaitWork has a context to end
	}
	c.acquired()
	lease.Limit(c.settings.maxHold)
	l.renewal = l.alignedRenewal(lease.Since(), l.renewalDelay(lease.Since()))

	if r := c.renewer(); r != nil {
		r.Add(c.settings.renewEach())
	}
	c.changed()
	client.mu.Lock()
	closed := client.closed
	watch := false
	if !closed && c.whole == nil {
		client.held[l] = struct{}{}
		watch, client.watching = !client.watching, true
	}
	client.mu.Unlock()
	if closed {
		// Close was called while the lock was being acquired, and does not know of the lock. The
		// caller learns at once that it is over.
		_ = l.release()
		l.forget() // if it is kept for WithMinHold
		return &l.holder
	}
	if watch {
		client.watchForSleep()
	}
	l.mu.Lock()
	if !l.over { // Close may have come meanwhile, and have released the lock
		client.clock.SetFrom(&l.alarm, lease.Since().Mono, l.untilNext(lease.Since()), (*ringer)(l))
	}
	l.mu.Unlock()
	return &l.holder
}
