package redlatch

import (
	"context"
	"slices"
)

// LockAll acquires all names, or none, as one lock: it has one validity, one context and one token,
// and is lost as soon as any of its names is lost on too many nodes. While it is held nobody holds
// any of the names, by Lock, LockAll or another library. The token is larger than all earlier ones of
// each name, and smaller than all later ones. Calls for several names do not deadlock with each
// other, nor with calls for one of them, whatever the order of the names: who waits holds none.
// Nested calls can, as with any lock.
//
// It waits as Lock does, in the wait queue for one of the names that are held, and tries for all when
// its turn has come. If another is held then it goes to the queue for that one, with the place
// that its age gives it there. Others may take the names meanwhile, one or several at a time: where
// they are in great demand a call for many can wait for long, and only its ctx bounds that. For all of
// 8 names, beside 16 clients each of which locks one of them all the time, a call waits for ten to
// thirty times as long as a lock is held, on one server, and for a hundred times and more over three.
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
