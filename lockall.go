package redlatch

import (
	"context"
	"slices"
)

// LockAll acquires all names, or none, as one lock: it has one validity, one context and one token,
// and is lost as soon as any of its names is lost on too many nodes. While it is held nobody holds
// any of the names, by Lock, LockAll or another library. The token is larger than all earlier ones of
// each name, and smaller than all later ones. Calls for several names do not deadlock with each
// other, nor with calls for one of them, whatever the order of the names. Nested calls can, as with
// any lock.
//
// It waits as Lock does, in the wait queue for one of the names that are held, and tries for all when
// its turn has come; it holds none while it waits. If another is held then it goes to the queue for
// that one, with the place that its age gives it there. Others may take the names meanwhile, one or
// several at a time, and never leave all of them free. So a call that has lost three turns takes
// the names one by one, in sorted order and each in its queue, and with the last of them makes one
// attempt for all, which is the lock. It waits for those who are ahead of it in the queue for
// each name, and is not starved.
//
// While it takes them one by one, others wait for the names that it has, and are told that this
// client holds them. These are no locks of the program's: Held, Stats, but for Tries, and Config.Observer
// do not know of them. It gives them back when ctx is done or the client is closed, for which it waits as
// Unlock does; and to begin anew when one is lost, when the attempt for all fails, or when it has not got
// all in 10 s, then 20 s and so on up to MaxHold, as who holds one of the names may be waiting for
// another. With WithoutQueue it never does this.
//
// A name that is given twice is one. There are 64 at most; each costs a node a few µs in a
// step. In a Redis Cluster all must be in one slot: give them one hash tag, as in {order-7}/stock
// and {order-7}/payment. ZooKeeper and etcd lock one name at a time. The error wraps ErrInvalid
// then, and nothing was sent; else errors, and what is left after one, are those of Lock. The
// Name of a *QuorumError is one that is held, if one is.
func (c *Client) LockAll(ctx context.Context, names []string, options ...Option) (*Lock, error) {
	if len(names) == 0 {
		return nil, invalid("LockAll has no names: pass one or more")
	}
	return c.lock(ctx, detached, names[0], true, append(slices.Clip(options), WithAlso(names[1:]...)))
}

// WithAlso has the call lock further names together with its own, all or none: it makes TryLock, Do and
// TryDo what LockAll is to Lock. Given several times it adds up.
func WithAlso(names ...string) Option {
	return func(r *settings) {
		also := slices.Clone(names)
		if r.also != nil {
			also = slices.Concat(*r.also, names)
		}
		r.also = &also
	}
}

// Names returns all names that were locked, each once, in the order in which they were given.
func (l *Lock) Names() []string {
	if l.call.several == nil {
		return []string{l.call.name}
	}
	return slices.Clone(l.call.several.names)
}
