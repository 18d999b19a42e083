package redlatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
)

// Lock acquires the lock name, and waits in the wait queue until it holds it or ctx is done
// (package documentation, "Waiting"). When ctx is done the caller has left the
// queue. The lock is renewed in the background unless an option says otherwise, until it is
// unlocked, lost, or MaxHold has passed.
//
// ctx ends the waiting only: an acquired lock does not end with it. Lock.Context has the
// values of ctx.
//
// If ctx carries a lock of this client and name that is held (Held), Lock would wait for its own
// caller, and returns ErrInvalid at once. A goroutine that is to wait until others have released
// that lock needs a ctx that was not made under it. What context.WithoutCancel makes of the lock's
// still carries it. Locks that were lost, released or detached are in nobody's way.
//
// Errors: when ctx is done first, errors.Is finds its cause and what stood in
// the way, ErrHeld, ErrNoQuorum, ErrNotAdmitted or ErrOverloaded, and errors.As a *QuorumError
// with each node's answer. What waiting cannot cure is returned at once:
// ErrRefused, ErrInvalid, ErrClosed. After any error nothing is held, and what
// a failed try may have left on a node is being removed.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, options)
}

// TryLock makes one try for the lock name. Where several try at the same moment each may get
// the votes of some nodes, and nobody the lock: then it tries again at random times, six
// times within half a second at most.
//
// A try waits for one step on the nodes, NodeTimeout at most, or for two in the rare case
// that no quorum of them agrees about the fencing token, or for ctx. With
// Config.Replicas a step takes up to twice its Timeout more. A lock that the nodes grant later
// than 2 s after the start of the try, because this process was held up, is given back, and the
// try has failed. Errors are those of Lock, at once. Where many callers lock at the same
// time, the steps of several go in one command: on a single node that command is waited
// for even when ctx is done, NodeTimeout at most.
//
// It does not wait, so it may be called also where ctx carries the lock (Held): the error is ErrHeld.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, false, options)
}

// Do runs fn while holding the lock name, for which it waits as Lock does. The
// ctx of fn is done when ctx is, or when the lock is lost: context.Cause
// tells which, and fn must then stop before the guard (WithGuard) is over. Do returns fn's error,
// joined with ErrLost when the lock was lost before fn returned, or with the
// error of the release. A panic or runtime.Goexit of fn releases the lock and goes on.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, true, options)
}

// TryDo runs fn if the lock name is free, as Do does, and makes one try as TryLock does.
// If another holds the lock, TryDo returns at once without calling fn, and errors.Is finds
// ErrHeld; the same goes for the other errors of TryLock. All else is as with Do.
//
// With WithMinHold, a job that several machines start at the same time runs once.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, false, options)
}

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

// do runs fn under the lock: after one try, or when it has waited for it.
func (c *Client) do(ctx context.Context, name string, fn func(ctx context.Context) error, wait bool, options []Option) (err error) {
	if fn == nil {
		return invalid("fn is nil: pass the function to run while the lock is held")
	}
	lock, err := c.lock(ctx, bound, name, wait, options)
	if err != nil {
		return err
	}
	// Deferred, so that a panic or runtime.Goexit of fn releases the lock on its way.
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }()
	return fn(lock.Context())
}

// lock makes one try, or tries until one holds.
func (c *Client) lock(ctx context.Context, b binding, name string, wait bool, options []Option) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	key, err := c.config.key(name)
	if err != nil {
		return nil, err
	}
	call := &call{client: c, ctx: ctx, binding: b, name: name, key: key, observed: c.observed()}
	if err := c.settings(&call.settings, options); err != nil {
		return nil, err
	}
	if call.settings.also != nil {
		if err := call.gather(); err != nil {
			return nil, err
		}
	}
	if call.settings.shared {
		if err := call.refuseShared(wait); err != nil {
			return nil, err
		}
	}
	if call.settings.permits != nil {
		if err := call.permit(); err != nil {
			return nil, err
		}
	}
	if wait {
		if err := call.refuseHeld(); err != nil {
			return nil, err
		}
	}
	if c.logs(slog.LevelDebug) {
		call.site = callSite()
	}
	switch {
	case !wait || !call.settings.queue:
		err = call.insist(wait)
	case call.settings.shared:
		err = c.waitqueue.WaitShared(ctx, call)
	case call.several != nil:
		err = call.lockAll()
	case call.permits != nil:
		err = c.waitqueue.WaitPermit(ctx, call)
	default:
		err = c.waitqueue.Wait(ctx, call)
	}
	if err != nil {
		call.failed(err)
		return nil, err
	}
	return &call.lock, nil
}

// refuseHeld returns an error where its ctx carries the very lock that the call is to wait for, or one
// that has a name of it.
func (c *call) refuseHeld() error {
	// rule: no-wait-for-itself
	_, is := held(c.ctx, func(l *Lock) bool { return l.client == c.client && l.call.overlaps(c) })
	switch {
	case is && c.permits != nil:
		return invalid("a permit of %q: the ctx of this very call carries one, and callers who each hold one and wait for another would wait for each other: use the one that is held, TryLock, or a ctx that was not made under it", c.name)
	case is:
		return invalid("lock %q: it is held by this very call, whose ctx carries it, and which would wait for itself: ask Held and go on without, or pass a ctx that was not made under the lock", c.name)
	}
	return nil
}

// splitTries is how often a call that does not wait tries again where the votes were split.
const splitTries = 6

// insist makes tries without a place in the wait queue. One that waits makes them at random times
// until one holds, and barges in before those who are queued. One that does not makes others
// only where votes were split: else of several who try at the same moment, all may be told that
// another has the lock.
func (c *call) insist(wait bool) error {
	for try := 0; ; try++ {
		if err := c.May(); err != nil {
			return err
		}
		request := c.Request()
		request.Barge = wait
		lease, failure := c.Try(request)
		switch {
		case lease != nil:
			if h := c.Hold(lease); !c.settings.shared && c.permits == nil {
				c.client.waitqueue.Acquired(h)
			}
			return nil
		case failure.Final, !wait && (try == splitTries || !c.failure.split()):
			return failure.Err
		case wait:
			c.Report()
		}
		if err := c.Rest(try); err != nil {
			return err
		}
	}
}

// Locker is what most programs ask of a client. A program that takes one, in place of a *Client,
// can be tested with the *redlatchtest.Client, which locks in memory. The methods are those of
// Client, and safe for concurrent use.
type Locker interface {
	Lock(ctx context.Context, name string, options ...Option) (*Lock, error)
	TryLock(ctx context.Context, name string, options ...Option) (*Lock, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error
	TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error
}

var _ Locker = (*Client)(nil)
