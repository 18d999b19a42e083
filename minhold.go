package redlatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
)

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
	return max(time.Millisecond, now.Until(l.minHoldEnd()))
}
