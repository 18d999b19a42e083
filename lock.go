package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Lock is one acquisition. It is safe for concurrent use, and shares nothing
// with another.
type Lock struct {
	client *Client
	// call is the one that acquired it.
	call *call
	// lease is the lock's until it has ended: then it may be another's.
	lease   *quorum.Lease
	token   uint64
	started clock.Instant
	// queue is where this process waits for the lock; nil before it is known there, and
	// no longer of meaning when it has another holder. The queues' mutex guards it.
	queue *queue

	mu    sync.Mutex // guards what follows; nothing is called while it is held
	state lockState
	// why is why it is held no more: it wraps ErrLost or ErrReleased. It is set once.
	why error
	// context is made when it is first asked for.
	context *lockContext
	alarm   clock.Alarm
	// finalUntil is the end of the validity that the lock had when it was lost or
	// released.
	finalUntil clock.Instant
	// renewal is when to renew next; renewing, that it is being done; failing, that the
	// last one failed.
	renewal           clock.Instant
	renewing, failing bool
}

// lockState is what became of a lock.
//
//	held ─ lose → lost ───────────────┐
//	  └ release → released ───────────┼ end → ended
//	                  └ keep → kept ──┘
type lockState uint8

const (
	lockHeld     lockState = iota
	lockLost               // its validity ran out or no quorum holds it; its keys may be there
	lockReleased           // its keys are about to be deleted
	lockKept               // it was released, and is kept until its WithMinHold is over
	lockEnded              // its lease was released, detached, or given to the next caller
)

func (c *Client) newLock(call *call, t turn) *Lock {
	l := &call.lock
	l.client, l.call, l.lease, l.token, l.started = c, call, t.lease, t.token, t.since
	l.renewal = l.started.Add(c.jitter(l.call.settings.ttl / 3))

	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.held[l] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		// Close was called while the lock was being acquired, and does not know
		// of it: the caller learns at once.
		l.finish(lockReleased, ErrReleased)
		l.drop(nil, true)
		return l
	}
	l.mu.Lock()
	c.clock.SetFrom(&l.alarm, l.started.Mono, l.nextTick(l.started), (*ticker)(l))
	l.mu.Unlock()
	return l
}

// Name returns the name that was locked.
func (l *Lock) Name() string { return l.call.name }

// Token returns the fencing token: larger for every later holder of the same
// lock, below 2^53, and not changed by an extension. A resource that refuses a
// smaller token than it has seen is safe from a holder that does not know yet
// that it lost its lock. Callers who hold in turn by one attempt have the tokens that
// it was granted: if a node's clock is stepped meanwhile, so that another gets the lock
// too, the other's is larger.
//
// Nodes remember the last token of a name for as long as one that restarts is
// kept out, MaxTTL and 4 s. A name that nobody used for so long, or a node that
// lost its memory, gets a token from the nodes' clocks. Tokens therefore
// increase as long as the nodes' clocks are within MaxTTL/2 + 1 s of each
// other; how far the clients' clocks are off does not matter.
func (l *Lock) Token() uint64 { return l.token }

// Until returns the time up to which the lock is certainly held unless it is
// released, by the local clock and with its monotonic reading: compare it with
// Before, After and Sub, and keep it off UTC, Round and marshalling, which strip
// that. It is no help across a suspend of the machine; Err and Context are.
func (l *Lock) Until() time.Time { return l.until().Mono }

// until is the end of the validity. That of a lost lock stays what it was: an
// extension whose answers came afterwards does not count.
func (l *Lock) until() clock.Instant {
	until := l.lease.Until()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != lockHeld {
		return l.finalUntil
	}
	return until
}

// Context returns a context that is done when the lock is lost or released.
// context.Cause then is an error that wraps ErrLost or ErrReleased. A lock is
// lost, by the local clock and whatever the network does, when its validity has
// run out but for the guard, and earlier when so many nodes have said that they
// do not hold it that no quorum is left.
//
// Its Done and Err look at the clock, so that a process that was stopped finds the
// lock lost before any timer has fired. A goroutine that waits for Done already, and
// contexts derived from this one, learn of it when somebody looks, or by a timer: some
// milliseconds later, in a process that was stopped. Ask Err of the lock, or of this
// context, before a step that must not come too late.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.context == nil {
		l.context = newLockContext(l.call.binding.parent(l.call.ctx), l)
		if l.state != lockHeld {
			l.context.cancel(l.why)
		}
	}
	return l.context
}

// Err returns nil while the lock is held, else an error that wraps ErrLost or
// ErrReleased. It asks the clock, not the network.
func (l *Lock) Err() error {
	l.mu.Lock()
	state, why := l.state, l.why
	l.mu.Unlock()
	// rule: holder-knows
	if state == lockHeld && l.client.clock.Now().Reached(l.lostAt()) {
		return l.lose(l.ranOut())
	}
	return why
}

// over reports that the lock is known to be lost or released.
func (l *Lock) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != lockHeld
}

var (
	errRanOut     = errors.New("its validity ran out")
	errImpossible = errors.New("no quorum of nodes holds it any more")
)

// ranOut says why the validity ran out.
func (l *Lock) ranOut() error {
	r := &l.call.settings
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.renewal && !l.renewing && !l.failing && l.started.Add(r.maxHold).Until(l.renewal) >= 0 {
		return fmt.Errorf("%w: %v, and it was not renewed beyond that: raise it for longer work", ErrMaxHold, r.maxHold)
	}
	return errRanOut
}

// lostAt is when the lock counts as lost.
func (l *Lock) lostAt() clock.Instant { return l.lease.Until().Add(-l.call.settings.guard) }

// lose makes the lock lost, if it was held, and returns what it is now.
func (l *Lock) lose(reason error) error {
	why, first := l.finish(lockLost, fmt.Errorf("%w: %q: %w", ErrLost, l.call.name, reason))
	if first {
		l.client.counters.lost.Add(1)
		// Work may go on until the end of the guard, so what is left of the
		// keys is released after it.
		l.mu.Lock()
		l.alarm.Reset(max(0, l.client.clock.Now().Until(l.finalUntil)))
		l.mu.Unlock()
		l.client.letGo(l)
		l.client.config.Logger.Warn("lock lost", "name", l.call.name, "token", l.Token(), "reason", reason)
	}
	return why
}

// finish has the lock held no more, because of why, if it was held, and returns why it is not.
func (l *Lock) finish(next lockState, why error) (last error, first bool) {
	until := l.lease.Until()
	l.mu.Lock()
	first = l.state == lockHeld
	if first {
		l.state, l.why, l.finalUntil = next, why, until
	}
	last, lockContext := l.why, l.context
	l.mu.Unlock()
	if first && lockContext != nil {
		lockContext.cancel(last)
	}
	return last, first
}

// Extend prolongs the lock to ttl from now, if that is later than now known; it
// never shortens it. It waits for a quorum, NodeTimeout at most, or for ctx. An
// extension counts when the quorum's answers came before the validity ran out.
//
// Errors: ErrLost or ErrReleased when the lock was not held any more, also when
// it is free by now: a lapsed lock is not taken again. ErrInvalid for a ttl
// beyond MaxTTL; ErrInvalid and ErrMaxHold for a lock held for longer than MaxHold. ErrNoQuorum, ErrRefused
// or ErrNotAdmitted in a *QuorumError, or ctx's cause, when no quorum said yes:
// the lock is then held as long as it was.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	ttl, err := wholeTTL("ttl", ttl, l.client.config.MaxTTL)
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	if l.client.clock.Now().Since(l.started) >= l.call.settings.maxHold {
		return fmt.Errorf("%w: %q is not extended any more: %w: %v", ErrInvalid, l.call.name, ErrMaxHold, l.call.settings.maxHold)
	}
	if err := l.client.enter(); err != nil {
		return err
	}
	defer l.client.calls.Done()
	return l.extend(ctx, ttl)
}

func (l *Lock) extend(ctx context.Context, ttl time.Duration) error {
	end, votes := l.lease.Extend(ctx, ttl)
	switch {
	case end == quorum.Lapsed:
		return l.lose(l.ranOut())
	case l.lease.Impossible():
		return l.lose(errImpossible)
	case end == quorum.Extended:
		return l.Err()
	case end == quorum.Over:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.why
	case ctx.Err() != nil:
		return fmt.Errorf("extend %q: %w", l.call.name, context.Cause(ctx))
	}
	return newQuorumError("extend", l.call.name, l.client.answers(votes))
}

// Unlock releases the lock, or hands it over to the next who waits for it. It waits
// until a quorum of nodes has deleted its keys or cannot any more, NodeTimeout
// at most, whether or not ctx is done; ctx is not used, and may be nil. Records on nodes
// that did not answer are deleted in the background, or expire with their TTL.
//
// Where the next caller of this client goes on to hold by the same attempt (package
// documentation, "Waiting"), no node is asked, and a lock that somebody has deleted there
// is not seen to be lost.
//
// Where another client waits, the node that keeps the wait queue is the only one that is
// asked: the client that it calls takes the other keys over, and those that are
// left are deleted in the background after half a second, or when the client is
// closed.
//
// Before the end of WithMinHold nothing is deleted yet: Unlock returns, and the lock is
// released when that is over.
//
// Errors: ErrLost when the lock was no longer ours, though what was left of it
// is released; ErrReleased when it was released before; ErrNoQuorum in a
// *QuorumError when too few nodes answered, or ErrRefused when too many refused: it is
// not held then, but others may have to wait for the TTL.
func (l *Lock) Unlock(ctx context.Context) error {
	_ = ctx
	if l.client.enterWith(l) == nil {
		defer l.client.calls.Done()
	}
	return l.release()
}

// end ends all that is done for the lock in the background. It reports false when it had
// ended before.
func (l *Lock) end() (first bool) {
	l.mu.Lock()
	l.alarm.Stop()
	first = l.state != lockEnded
	l.state = lockEnded
	l.mu.Unlock()
	l.client.mu.Lock()
	delete(l.client.held, l)
	l.client.mu.Unlock()
	return first
}

// release ends the lock, whatever it was, and deletes its keys, unless it is to be kept
// for what is left of WithMinHold.
func (l *Lock) release() error {
	before := l.Err()
	last, first := l.finish(lockReleased, ErrReleased)
	if !first {
		before = last
	}
	if !errors.Is(before, ErrLost) && l.minHoldLeft() > 0 {
		return l.keep(first, before)
	}
	return l.drop(before, before == nil)
}

// drop deletes the keys of a lock that is over, or hands them on where the lock was
// held. before is why it was over already, and what drop returns then.
func (l *Lock) drop(before error, held bool) error {
	if !l.end() {
		return before
	}
	votes, ok := l.client.giveUp(l, held)
	if before != nil || !ok || votes == nil {
		return before
	}
	deleted, notOurs, unheard := 0, 0, false
	for _, v := range votes {
		switch v.Verdict {
		case vote.Granted:
			deleted++
		case vote.NotOurs, vote.Held:
			notOurs++
		case vote.Unknown, vote.Unavailable: // which may have called somebody, too
			unheard = true
		}
	}
	need := quorum.Majority(len(votes))
	if deleted >= need {
		return nil
	}
	if notOurs > len(votes)-need {
		// rule: not-lost-in-doubt
		if !unheard {
			return fmt.Errorf("%w: %q: %w", ErrLost, l.call.name, errImpossible)
		}
		// Whoever was not heard may keep the queue, and have called another, who has taken
		// over what the rest do not have.
		for i, v := range votes {
			if v.Verdict != vote.Granted {
				votes[i] = vote.Answer{}
			}
		}
	}
	return newQuorumError("unlock", l.call.name, l.client.answers(votes))
}

// Detach hands the lock over to whoever keeps the id that it returns: from then
// on it is not renewed, Close does not release it, and its context is done.
// Package oneshot extends and releases it by the id, here or in another process. It does not block.
//
// The error wraps ErrLost or ErrReleased when the lock was not held any more.
func (l *Lock) Detach() (id string, err error) {
	if err := l.Err(); err != nil {
		return "", err
	}
	last, first := l.finish(lockReleased, fmt.Errorf("%w: detached", ErrReleased))
	if !first {
		return "", last
	}
	if !l.end() || !l.lease.Detach() { // released at the same time
		return "", ErrReleased
	}
	l.client.letGo(l)
	return l.lease.ID(), nil
}
