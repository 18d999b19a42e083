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

// Unlock releases the lock, or transfers it to the next caller that waits for it. It waits until a
// quorum of nodes has deleted its keys or no longer can, for four times NodeTimeout at most; with
// Config.Replicas, for eight times its Timeout more. ctx is not used, and may be nil. Keys on nodes
// that did not answer are deleted in the background, or expire with their TTL.
//
// If the next caller of this client holds the lock by the same attempt (package documentation,
// "Waiting"), Unlock asks no node. It then does not notice that somebody has deleted the lock.
//
// If another client waits, Unlock asks only the node that keeps the wait queue. The client that
// this node wakes up replaces the keys on the other nodes. What it does not replace is deleted in
// the background after half a second, or when this client is closed.
//
// Before the end of WithMinHold nothing is deleted yet: Unlock returns, and the client releases the
// lock when that time is over.
//
// Errors: ErrLost if the lock was no longer ours, though what was left of it is released;
// ErrReleased if it was released before; ErrNoQuorum in a *QuorumError if too few nodes answered,
// or ErrRefused if too many refused: the lock is not held then, but others may have to wait for the
// TTL.
func (l *Lock) Unlock(ctx context.Context) error {
	_ = ctx
	if l.client.enterWith(l) == nil {
		defer l.client.calls.Done()
	}
	return l.release()
}

// releasedError is ErrReleased with the name of the lock, for which it needs no memory of its own.
type releasedError Lock

func (e *releasedError) Error() string { return fmt.Sprintf("%v: %q", ErrReleased, e.call.name) }

func (e *releasedError) Unwrap() error { return ErrReleased }

// release ends the lock, whatever its state, and deletes its keys, unless the lock is to be kept
// for the rest of WithMinHold. What another goroutine has unlocked is left to that one, which tells its
// caller what the nodes say; Close waits for it.
func (l *Lock) release() (err error) {
	_ = l.Err() // a lock whose validity is over by now was lost, and is not unlocked
	why, first := l.unlock((*releasedError)(l))
	lost := errors.Is(why, ErrLost)
	if !first && !lost && !l.lease.Kept() {
		return why
	}
	held := l.heldFor()
	keep := !lost && l.minHoldLeft() > 0
	if keep {
		err = l.keep()
	} else {
		err = l.drop()
	}
	switch {
	case first:
		l.released(held, err)
		return err
	case keep:
		return errors.Join(why, err)
	}
	return why
}

// end ends the work for the lock in the background. It reports false if that had ended before:
// somebody else then takes care of the lease.
func (l *Lock) end() (first bool) {
	l.mu.Lock()
	first, l.over = !l.over, true
	l.alarm.Stop()
	l.mu.Unlock()
	l.client.mu.Lock()
	delete(l.client.held, l)
	l.client.mu.Unlock()
	if r := l.call.renewer(); r != nil && first {
		r.Remove(l.call.settings.renewEach())
	}
	return first
}

// drop deletes the keys of a lock that is over, or transfers them. It returns nil where another
// goroutine does that.
func (l *Lock) drop() error {
	if !l.end() {
		return nil
	}
	votes, ok := l.client.waitqueue.Release(&l.holder, l.lease)
	l.call.changed()
	if !ok || votes == nil {
		return nil
	}
	err := l.releaseError(votes)
	if errors.Is(err, ErrNoQuorum) {
		l.mu.Lock()
		l.unheard = true
		l.mu.Unlock()
	}
	return err
}

// releaseError returns nil if by votes a quorum has deleted the lock's keys, and else the error to report.
func (l *Lock) releaseError(votes []vote.Answer) error {
	yes, notOurs, unheard := 0, 0, false
	for _, v := range votes {
		switch v.Verdict {
		case vote.Granted:
			yes++
		case vote.NotOurs, vote.Held:
			notOurs++
		case vote.Unknown, vote.Unavailable: // it may have woken somebody up, too
			unheard = true
		}
	}
	need := quorum.Majority(len(votes))
	if yes >= need {
		return nil
	}
	if notOurs > len(votes)-need {
		// rule: not-lost-in-doubt
		if !unheard {
			return fmt.Errorf("%w: %q: %w", ErrLost, l.call.name, errImpossible)
		}
		// The node that was not heard may keep the queue. It may have woken up another client,
		// which has taken over what the rest of the nodes do not have.
		for i, v := range votes {
			if v.Verdict != vote.Granted {
				votes[i] = vote.Answer{}
			}
		}
	}
	return newQuorumError("unlock", l.call.name, l.client.answers(votes))
}

// minHoldEnd returns when the lock may be released at the earliest. It is by the monotonic clock alone: a
// wall clock that is stepped forward would end it early.
func (l *Lock) minHoldEnd() time.Time { return l.lease.Since().Mono.Add(l.call.settings.minHold) }

// minHoldLeft returns how long it is until minHoldEnd.
func (l *Lock) minHoldLeft() time.Duration {
	if l.call.settings.minHold == 0 {
		return 0
	}
	return l.minHoldEnd().Sub(l.client.clock.Mono())
}

// keep leaves a lock that was released too soon with the servers, until its WithMinHold is over.
// After Close, the TTL ends it.
func (l *Lock) keep() error {
	err := l.prolong()
	if errors.Is(err, ErrLost) {
		_ = l.drop()
		return err
	}
	l.lease.Keep()
	now := l.client.clock.Now()
	// This does nothing where another goroutine has ended it meanwhile.
	l.setAlarm(now, l.untilMinHoldEnd(now))
	if l.client.life.Err() != nil { // Close may have left it to this goroutine
		l.forget()
	}
	return err
}

// forget ends the work for a lock that is over, and leaves its keys to expire.
func (l *Lock) forget() {
	if l.end() && l.lease.Detach() {
		l.client.waitqueue.LetGo(&l.holder)
	}
}

// prolong makes the servers keep the lock until its WithMinHold is over, if they do not already. It
// waits for one step.
func (l *Lock) prolong() error {
	end := l.minHoldEnd()
	if !end.After(l.lease.KeptUntil().Mono) {
		return nil
	}
	outcome, votes := l.lease.Extend(context.Background(), l.client.ttlFor(l.minHoldLeft()))
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

// maxReleases is how many locks Close releases at once, and how many the client releases at once of
// those that nobody unlocks. More would not be quicker: the nodes have some commands of several
// steps each under way for them.
const maxReleases = 256

// tidy calls release for a lock that nobody unlocks. If the client does so for many others at this
// time, as after a loss of all its locks, the alarm rings again a second later.
func (l *Lock) tidy(now clock.Instant, release func()) {
	select {
	case l.client.tidying <- struct{}{}:
		release()
		<-l.client.tidying
	default:
		l.setAlarm(now, l.client.jitter(time.Second))
	}
}

// checkKept releases a lock whose WithMinHold is over; before that, it sets the alarm to be called
// again.
func (l *Lock) checkKept(now clock.Instant) {
	if now.Mono.Before(l.minHoldEnd()) {
		l.setAlarm(now, l.untilMinHoldEnd(now))
		return
	}
	l.tidy(now, func() {
		if err := l.drop(); err != nil {
			l.client.config.Logger.Debug("release after WithMinHold", "name", l.call.name, "error", err)
		}
	})
}

// untilMinHoldEnd returns the time from now to the next look at a lock that is kept.
func (l *Lock) untilMinHoldEnd(now clock.Instant) time.Duration {
	return max(time.Millisecond, l.minHoldEnd().Sub(now.Mono))
}

// Detach gives the lock up to whoever keeps the id that it returns. From then on the client does
// not renew the lock, Close does not release it, and its context is done. Package oneshot extends
// and releases it by the id, here or in another process. Detach waits for nodes that have yet to answer
// the lock's last attempt or extension, for NodeTimeout at most (with Config.Replicas, twice its Timeout
// more): what they are still asked would come after a release by the id.
//
// The error wraps ErrLost or ErrReleased if the lock was not held any more. It wraps ErrInvalid for
// a lock of several names, a reader's lock and a permit, which are then still held.
func (l *Lock) Detach() (id string, err error) {
	if l.client.enterWith(l) == nil {
		defer l.client.calls.Done()
	}
	if err := l.Err(); err != nil {
		return "", err
	}
	if l.call.several != nil {
		return "", invalid("the lock has several names, and package oneshot extends and releases one at a time: lock them one by one to detach them")
	}
	if l.call.settings.shared {
		return "", invalid("the lock is a reader's, and package oneshot has no readers: use Lock to detach a lock")
	}
	if l.call.permits != nil {
		return "", invalid("it is a permit, and package oneshot extends and releases only locks: use Lock to detach a lock")
	}
	why, first := l.unlock(fmt.Errorf("%w: detached", (*releasedError)(l)))
	if !first {
		return "", why
	}
	l.released(l.heldFor(), nil)
	if !l.end() || !l.lease.Detach() { // released at the same time
		return "", (*releasedError)(l)
	}
	if s, is := l.client.store(); is {
		s.Detach(l.call.key, l.lease.ID())
	}
	l.client.waitqueue.LetGo(&l.holder)
	return l.lease.ID(), nil
}
