package redlatch

import (
	"errors"
	"sync"
)

// Close releases the locks that this client holds, waits for what is under way,
// and closes the connections. Waiting calls return ErrClosed. It takes a few
// times NodeTimeout at most: where a quorum has answered, what is still to be done on the
// other nodes gets one NodeTimeout, and next to nothing on one that has never answered. Keys
// on nodes that do not answer expire with their TTL, as do locks whose WithMinHold is not over.
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

	errs := make([]error, len(held))
	var releases sync.WaitGroup
	for i, lock := range held {
		releases.Go(func() {
			lock.awaitWork()
			if err := lock.release(); !errors.Is(err, ErrLost) && !errors.Is(err, ErrReleased) {
				errs[i] = err
			}
		})
	}
	releases.Wait()
	c.shut()
	return errors.Join(errs...)
}
