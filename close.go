package redlatch

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/vote"
)

// Close releases the locks that this client holds, waits for what is under way, and closes the
// connections. Waiting calls return ErrClosed. Close takes a few times NodeTimeout at most: when a
// quorum has answered, each other node gets one NodeTimeout for what is still to be done there, and
// next to nothing if it has never answered. Some keys are left to expire with their TTL: keys on
// nodes that do not answer, locks whose WithMinHold is not over, and, of many locks, those that are
// left when no quorum has answered for hundreds in a row.
//
// The error wraps ErrNoQuorum or ErrRefused for locks of which fewer than a quorum of keys were
// seen deleted. Its text has the first ten of them. A second call does nothing.
//
// Close ends the ctx of the function that Campaign runs, with a cause that wraps ErrReleased and
// ErrClosed. It releases the lead when the function has returned, or when the validity is over, and
// takes as long as that. So the function should not call Close.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	held := make([]*Lock, 0, len(c.held))
	for lock := range c.held {
		held = append(held, lock)
	}
	c.mu.Unlock()
	c.end(ErrClosed)

	errs := c.releaseAll(held)
	c.shut()
	return closeError(errs)
}

// closeError joins errs, which may be those of thousands of locks.
func closeError(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	const told = 10
	if len(errs) > told {
		errs = append(errs[:told:told], furtherErrors(errs[told:]))
	}
	return errors.Join(errs...)
}

// furtherErrors are found by errors.Is and have no text of their own.
type furtherErrors []error

func (e furtherErrors) Error() string {
	return fmt.Sprintf("further locks that were not unlocked: %d", len(e))
}

func (e furtherErrors) Unwrap() []error { return e }

// maxUnheard is how many releases in a row may hear no quorum before Close leaves the rest of the
// locks to their TTL. It is twice what is released at once, as one stall of this process can make
// all of those late.
const maxUnheard = 2 * maxReleases

// releaseAll releases the locks, and leads when their work has returned. It returns the errors to
// report.
func (c *Client) releaseAll(held []*Lock) (errs []error) {
	errs = make([]error, len(held))
	var unheard atomic.Int64
	release := func(i int) {
		end := held[i].release
		if unheard.Load() >= maxUnheard {
			end = held[i].leave
		}
		err := end()
		switch { // a lock that was lost, or is kept, says nothing of the nodes by its error
		case errors.Is(err, ErrNoQuorum) || held[i].endedUnheard():
			unheard.Add(1)
		case err == nil && held[i].minHoldLeft() <= 0: // else no node may have been asked
			unheard.Store(0)
		}
		if !errors.Is(err, ErrLost) && !errors.Is(err, ErrReleased) {
			errs[i] = err
		}
	}
	queue := make(chan int, len(held))
	var releases sync.WaitGroup
	for i, lock := range held {
		if lock.work == nil {
			queue <- i
			continue
		}
		releases.Go(func() { // not in the queue, as it waits for the work
			lock.awaitWork()
			release(i)
		})
	}
	close(queue)
	for range min(maxReleases, len(queue)) {
		releases.Go(func() {
			for i := range queue {
				release(i)
			}
		})
	}
	releases.Wait()
	return errs
}

// endedUnheard reports whether no quorum answered when what was left of the lock was to be deleted.
func (l *Lock) endedUnheard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unheard
}

// leave ends a lock and leaves its keys to expire.
func (l *Lock) leave() error {
	_ = l.Err() // a lock whose validity is over by now was lost, and is not unlocked
	held := l.heldFor()
	why, first := l.unlock((*releasedError)(l))
	if first || errors.Is(why, ErrLost) || l.lease.Kept() { // else the goroutine that unlocks it goes on
		l.forget()
	}
	if !first {
		return why
	}
	votes := make([]vote.Answer, len(l.client.nodes))
	for i := range votes {
		votes[i].Verdict = vote.NotSent
	}
	err := newQuorumError("unlock", l.call.name, l.client.answers(votes))
	l.released(held, err)
	return err
}
