package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Unlock releases the lock, or hands it over to the next who waits for it. It waits
// until a quorum of nodes has deleted its keys or cannot any more, NodeTimeout
// at most, whether or not ctx is done; ctx is not used, and may be nil. Keys on nodes
// that did not answer are deleted in the background, or expire with their TTL.
//
// Where the next caller of this client goes on to hold by the same attempt (package
// documentation, "Waiting"), no node is asked, and a lock that somebody has deleted there
// is not seen to be lost.
//
// Where another client waits, the node that keeps the wait queue is the only one that is
// asked: the client that it wakes up takes the other keys over, and those that are
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

// release ends the lock, whatever it was, and deletes its keys, unless it is to be kept
// for what is left of WithMinHold.
func (l *Lock) release() error {
	before := l.Err()
	last, first := l.unlock(ErrReleased)
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
	votes, ok := l.client.waitqueue.Release(&l.holder, held)
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
		case vote.Unknown, vote.Unavailable: // which may have woken somebody up, too
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
		// Whoever was not heard may keep the queue, and have woken up another, who has taken
		// over what the rest do not have.
		for i, v := range votes {
			if v.Verdict != vote.Granted {
				votes[i] = vote.Answer{}
			}
		}
	}
	return newQuorumError("unlock", l.call.name, l.client.answers(votes))
}

// ttlFor is the TTL that leaves a validity of d, or the longest there is.
func (c *Client) ttlFor(d time.Duration) time.Duration {
	ttl := (d+2*time.Millisecond)*100/99 + time.Millisecond
	return min(ttl.Truncate(time.Millisecond), c.config.MaxTTL)
}

// firstTTL is the TTL with which a lock is asked for: with WithMinHold it covers that, so
// that it is kept though nobody should be left to prolong it. The steps of an attempt come
// off the validity before the lock is granted.
func (c *Client) firstTTL(r *settings) time.Duration {
	if r.minHold == 0 {
		return r.ttl
	}
	return max(r.ttl, c.ttlFor(r.minHold+2*c.config.stepTimeout()))
}

// minHoldEnd is when the lock may be released at the earliest.
func (l *Lock) minHoldEnd() clock.Instant { return l.lease.Since().Add(l.call.settings.minHold) }

// minHoldLeft is how long until then.
func (l *Lock) minHoldLeft() time.Duration {
	if l.call.settings.minHold == 0 {
		return 0
	}
	return l.client.clock.Now().Until(l.minHoldEnd())
}

// keep leaves a lock that was released too soon with the servers, until its WithMinHold is
// over; first, that it was released just now. After Close the TTL ends it.
func (l *Lock) keep(first bool, before error) error {
	closing := l.client.life.Err() != nil
	if !first && !closing {
		return before
	}
	err := l.prolong()
	if errors.Is(err, ErrLost) {
		return errors.Join(l.drop(before, false), err)
	}
	if closing || l.client.life.Err() != nil {
		if l.end() && l.lease.Detach() {
			l.client.waitqueue.LetGo(&l.holder)
		}
		return errors.Join(before, err)
	}
	if l.lease.Keep() {
		l.ring(l.nextKept(l.client.clock.Now()))
	}
	return errors.Join(before, err)
}

// prolong has the servers keep the lock until its WithMinHold is over, if they do not yet.
// It waits for a step.
func (l *Lock) prolong() error {
	now, end := l.client.clock.Now(), l.minHoldEnd()
	if l.lease.KeptUntil().Until(end) <= 0 {
		return nil
	}
	outcome, votes := l.lease.Extend(context.Background(), l.client.ttlFor(now.Until(end)))
	switch {
	case outcome == quorum.Extended, outcome == quorum.Over:
		return nil
	case outcome == quorum.Lapsed:
		return fmt.Errorf("%w: %q: %w", ErrLost, l.call.name, errRanOut)
	case l.lease.Impossible():
		return fmt.Errorf("%w: %q: %w", ErrLost, l.call.name, errImpossible)
	}
	return newQuorumError("extend", l.call.name, l.client.answers(votes))
}

// tickKept releases a lock whose WithMinHold is over, and sets itself to be called again
// while it is not.
func (l *Lock) tickKept(now clock.Instant) {
	if now.Until(l.minHoldEnd()) > 0 {
		l.ring(l.nextKept(now))
		return
	}
	if err := l.drop(nil, !now.Reached(l.lease.KeptUntil())); err != nil {
		l.client.config.Logger.Debug("release after WithMinHold", "name", l.call.name, "error", err)
	}
}

// nextKept is the time from now to the next look at a lock that is kept.
func (l *Lock) nextKept(now clock.Instant) time.Duration {
	return max(time.Millisecond, min(now.Until(l.minHoldEnd()), longestTick))
}
