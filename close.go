package redlatch

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/vote"
)

// Close releases the locks that this client holds, waits for what is under way,
// and closes the connections. Waiting calls return ErrClosed. It takes a few
// times NodeTimeout at most: where a quorum has answered, what is still to be done on the
// other nodes gets one NodeTimeout, and next to nothing on one that has never answered. Keys
// on nodes that do not answer expire with their TTL, as do locks whose WithMinHold is not over, and,
// of many, those that are left when no quorum has answered for hundreds in a row.
// It returns an error that wraps
// ErrNoQuorum or ErrRefused for locks of which fewer than a quorum of keys were seen
// deleted. A second call does nothing.
//
// Of a lead it ends the ctx of what Campaign runs, with a cause that wraps ErrReleased and ErrClosed,
// and releases the lead when that has returned, or when its validity is over: it takes as long. So
// what Campaign runs should not call Close.
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
	return errors.Join(errs...)
}

const (
	// maxReleases is how many locks Close releases at once. More are no quicker: the nodes have some
	// commands of several steps each under way for them.
	maxReleases = 256
	// maxUnheard is after how many in a row of which no quorum was heard the rest is left to its TTL:
	// all that are released at once, twice, as one stall of this process can make all of them late.
	maxUnheard = 2 * maxReleases
)

// releaseAll releases locks, those of leads when their work has returned, and returns what is to be said of
// them.
func (c *Client) releaseAll(held []*Lock) (errs []error) {
	errs = make([]error, len(held))
	var unheard atomic.Int64
	release := func(i int) {
		end := held[i].release
		if unheard.Load() >= maxUnheard {
			end = held[i].leave
		}
		err := end()
		if errors.Is(err, ErrNoQuorum) {
			unheard.Add(1)
		} else {
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
		releases.Go(func() { // beside the one that leads
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

// leave ends a lock whose keys are left to expire.
func (l *Lock) leave() (err error) {
	before, held := l.Err(), l.heldFor()
	last, first := l.unlock(ErrReleased)
	if !first {
		return last
	}
	if l.end() && l.lease.Detach() {
		l.client.waitqueue.LetGo(&l.holder)
	}
	if err = before; err == nil {
		votes := make([]vote.Answer, len(l.client.nodes))
		for i := range votes {
			votes[i].Verdict = vote.NotSent
		}
		err = newQuorumError("unlock", l.call.name, l.client.answers(votes))
	}
	l.released(held, err)
	return err
}
