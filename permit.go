package redlatch

import (
	"context"
	"slices"
)

// Acquire takes one of k permits of name, and waits in the wait queue while all are taken. Permits and
// the lock of the same name do not exclude each other: who holds the one is not in the way of who
// wants the other. Nor do other libraries exclude permits.
//
// Each permit is a slot, from 0 to k-1, which one holder at a time has: Slot may name a port, a licence
// or a shard. All that is said of a lock goes for the slot: it has a validity, is renewed, and may be
// lost. Its token is larger than all earlier ones of the same slot, so what guards a resource by
// tokens must guard each slot by itself.
//
// k is stored nowhere. Callers should agree on it; where they do not, the largest counts, and who gives
// a smaller one waits until one of its slots is free. To change a limit, give another k: permits beyond
// it end when they are released. k is from 1 to 256.
//
// Who waits gets a permit in the order of arrival. Of several nodes, the one that keeps the queue says
// which slot, and then the others are asked for it: one step more than for a lock.
//
// If ctx carries a permit of this client and name that is held, Acquire returns ErrInvalid at once:
// callers who each hold one and wait for another would wait for each other. TryLock with WithPermits
// does not wait, and takes another if one is free. ZooKeeper and etcd have no permits: the error
// wraps ErrInvalid. All else, errors and what is left after one, is as with Lock; the Holder of a
// *QuorumError has the slot that may become free first.
func (c *Client) Acquire(ctx context.Context, name string, k int, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, append(slices.Clip(options), WithPermits(k)))
}

// WithPermits has the call take one of k permits of its name: it makes TryLock, Do and TryDo what
// Acquire is to Lock. Permits and the lock of the same name do not exclude each other. WithAlso and
// Campaign do not go with it.
func WithPermits(k int) Option { return func(r *settings) { r.permits = &k } }

// Slot returns which of the permits was acquired, from 0 on; -1 of a lock.
func (l *Lock) Slot() int {
	if l.call.permits == nil {
		return -1
	}
	return l.call.permits.slot
}
