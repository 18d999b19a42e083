package redlatch

import (
	"context"
	"slices"
)

// RLock acquires the lock name for reading: any number of readers hold it together, or one writer, who is
// Lock, TryLock or another library's lock of that name. Each reader has a lock of its own, with its own
// expiry, renewal, context and release. A reader's token is larger than that of every earlier writer, and
// smaller than that of every later one; readers who hold at the same time may have equal tokens.
//
// It waits as Lock does, and is fair to both: while a writer waits, readers who come wait behind it; when a
// writer leaves, those who wait at that moment go in together; when they have left, the next writer. So
// a reader waits for one writer, and a writer for those who read and for one more phase of readers for
// each writer ahead of it. Of one client's callers of Lock several in a row may count as one writer, as
// they do for Lock in another client: eight, or some more before the client has heard that others wait.
// 256 readers are woken up at once. What breaks an order among writers, an arbiter that is
// out or a client that is slow, breaks this one.
//
// There is no way from reading to writing but to release and lock again: two readers who waited for each
// other to leave would do so for ever. If ctx carries a lock of this client and name that is held, by Lock
// or RLock, the error is ErrInvalid at once: a writer may be waiting between the two. It also is for
// WithoutQueue, WithAlso, Detach, and in ZooKeeper and etcd. Else errors, and what is left after one, are
// those of Lock; Holder.Shared says that readers are in the way.
func (c *Client) RLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, append(slices.Clip(options), WithShared()))
}

// WithShared has the call lock as a reader: it makes TryLock, Do and TryDo what RLock is to Lock. TryLock
// then fails with ErrHeld also where only readers have the lock and a writer waits.
func WithShared() Option { return func(r *settings) { r.shared = true } }
