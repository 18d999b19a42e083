package redlatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// A call for several names holds none of them while it waits, and tries for all when its turn has
// come for one. It may never find all of them free if others take them in turns, one or several at
// a time. So a call that has lost some turns takes the names one by one, each in its queue as Lock
// does, and renews those that it has. When it has all, one attempt for all of them replaces these
// locks: the one holder id, validity and token come from that attempt. The locks of one name belong
// to this file: none is counted, observed or in a ctx that the program has, and nothing that is
// promised rests on them.

// firstPatience is how long a call at first keeps others from names that it has, as the holder of a
// missing name may be waiting for one of them. Then the call gives them back and begins anew, with
// twice the time, up to MaxHold.
const firstPatience = 10 * time.Second

var errPatience = errors.New("the other names took too long")

// lockAll waits until the call holds all of its names.
func (c *call) lockAll() error {
	for patience := firstPatience; ; patience = min(2*patience, max(patience, c.settings.maxHold)) {
		if !c.client.singly {
			if err := c.client.waitqueue.WaitAll(c.ctx, c); !errors.Is(err, waitqueue.ErrElsewhere) {
				return err
			}
		}
		if holds, err := c.lockSingly(patience); holds || err != nil {
			return err
		}
	}
}

// lockSingly takes the names one by one, and then replaces these locks by one for all. It holds
// none if one was lost meanwhile, if patience is over, or if the last attempt failed. It returns an
// error that waiting does not cure.
func (c *call) lockSingly(patience time.Duration) (holds bool, err error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, patience, errPatience)
	defer cancel()
	var singles []*call
	// This is deferred because a wait report may panic or end this goroutine.
	defer func() { c.client.releaseSingles(singles) }()
	// While a call waits for a name, it has only names that sort before that, so that such calls do
	// not wait in a circle.
	// rule: taken-in-order
	for _, key := range slices.Sorted(slices.Values(c.several.keys)) {
		one := c.single(ctx, key)
		err := c.client.waitqueue.Wait(ctx, one)
		c.reported, c.waited = one.reported, one.waited
		if err != nil {
			c.failure = cmp.Or(one.failure, c.failure)
			switch {
			case c.ctx.Err() != nil: // maybe only since ctx ended for a reason of its own, which err then has
				err = c.Ended()
			case ctx.Err() != nil:
				err = nil
			}
			return false, err
		}
		singles = append(singles, one)
		ctx = one.lock.Context() // done when this one is lost, or one before
	}
	lease, failure := c.replace(singles)
	switch {
	case lease != nil:
		c.client.waitqueue.Acquired(c.Hold(lease))
		return true, nil
	case failure.Final:
		return false, failure.Err
	}
	return false, nil
}

// single returns a call for one of the names.
func (c *call) single(ctx context.Context, key string) *call {
	one := &call{
		client: c.client, ctx: ctx, binding: bound, name: c.several.nameOf(key), key: key, whole: c, settings: c.settings,
		observed: c.observed, reported: c.reported, waited: c.waited, site: c.site,
	}
	s := &one.settings
	s.also, s.leading, s.renewal, s.maxHold = nil, false, true, endless
	s.minHold, s.firstTTL, s.guard = 0, s.ttl, s.ttl/10
	return one
}

// replace makes the attempt for all names. singles holds each of them, in the order of their keys.
func (c *call) replace(singles []*call) (*quorum.Lease, waitqueue.Failure) {
	c.key = singles[0].key
	request := c.Request()
	leases, holders := make([]*quorum.Lease, len(singles)), make([]string, len(singles))
	for i, one := range singles {
		one.lock.unlock(ErrReleased)
		one.lock.end()
		leases[i], holders[i] = one.lock.lease, one.lock.lease.ID()
	}
	request.From, holders = holders[0], holders[1:]
	request.Froms = &holders
	lease, votes := c.client.engine.TakeOver(c.ctx, request, leases)
	return c.tried(request, lease, votes)
}

// releaseSingles gives back the locks of singles that are held, and waits for the nodes as Unlock
// does.
func (c *Client) releaseSingles(singles []*call) {
	var releases sync.WaitGroup
	for _, one := range singles {
		releases.Go(func() {
			one.lock.release()
			c.waitqueue.LetGo(&one.lock.holder) // if the lock for all took its place
		})
	}
	releases.Wait()
}
