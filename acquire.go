package redlatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// Lock acquires the lock name. It waits in the wait queue until it holds the lock or ctx is done
// (package documentation, "Waiting"). When ctx is done, the caller leaves the queue. The client
// renews the lock in the background, unless an option says otherwise, until it is unlocked or lost,
// or MaxHold has passed.
//
// A name has from 1 to 512 bytes. The lock's key, which Config.KeyTemplate makes of it, must not begin
// with redlatch:, as the library's own keys do.
//
// ctx ends the waiting only: an acquired lock does not end with it. Lock.Context has the values of
// ctx.
//
// If ctx carries a held lock of this client and name (Held), Lock would wait for its own caller, so
// it returns ErrInvalid at once. A goroutine that is to wait until others have released that lock
// needs a ctx that was not made under it. A ctx that context.WithoutCancel made from the lock's
// still carries the lock. Locks that were lost, released or detached do not count.
//
// Errors: when ctx is done first, errors.Is finds its cause and, unless ctx ended before anything was
// known of it, what stood in the way, which is ErrHeld, ErrNoQuorum, ErrNotAdmitted or ErrOverloaded;
// errors.As finds a *QuorumError with each node's answer. Errors that waiting cannot cure are returned
// at once: ErrRefused, ErrInvalid, ErrClosed. After any error nothing is held, and the client is
// removing what a failed try may have left on a node. Until that is removed, a further try, also of
// another client, may fail with ErrHeld by it.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, options)
}

// TryLock makes one try for the lock name. When several callers try at the same moment, each may
// get the votes of some nodes, and none of them the lock. TryLock then tries again, six times at
// most, after random pauses, of 800ms in all at most.
//
// A try waits for one step on the nodes, for NodeTimeout at most, or until ctx is done. It waits
// for two steps in the rare case that no quorum of the nodes agrees about the fencing token. With
// Config.Replicas a step takes up to twice its Timeout more. If the client has 256 tries under way, a
// further one begins when one of them has ended, in the order of the calls. If the nodes grant the
// lock later than 2 s after the start of the try, because this process was held up, the lock is given
// back and the try has failed. Errors are those of Lock, at once. When many callers lock at the same
// time, the steps of several go in one command: on a single node TryLock waits for that command even
// when ctx is done, for NodeTimeout at most.
//
// TryLock does not wait for a holder, so it may be called even if ctx carries the lock (Held): the
// error is ErrHeld.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, false, options)
}

// Do runs fn while it holds the lock name, for which it waits as Lock does. The ctx of fn is done
// when ctx is done or when the lock is lost. context.Cause tells which, and fn must then stop before
// the guard (WithGuard) is over. Do returns fn's error, joined with ErrLost if the lock was lost
// before fn returned, or with the error of the release. Both that and the error of a lock that was
// not acquired may wrap ErrNoQuorum: the Op of the *QuorumError is "lock" if fn was not called, and
// another after fn has returned. fn is not called either where the client is closed, or the validity
// runs out, before Do has learnt that it holds the lock: errors.Is then finds ErrReleased or ErrLost.
// If fn panics or calls runtime.Goexit, Do releases the lock, and the panic or the exit goes on.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, true, options)
}

// TryDo runs fn, as Do does, if the lock name is free. It makes one try, as TryLock does. If
// another holder has the lock, TryDo returns at once without calling fn, and errors.Is finds
// ErrHeld; the same goes for the other errors of TryLock. All else is as with Do.
//
// With WithMinHold, a job that several machines start at the same time runs once.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error {
	return c.do(ctx, name, fn, false, options)
}

// RLock acquires the lock name as a reader. Either any number of readers hold a lock together, or
// one writer, which is a caller of Lock or TryLock or another library's lock of that name. Each
// reader has a lock of its own, with its own expiry, renewal, context and release. A reader's token
// is larger than that of every earlier writer, and smaller than that of every later one; readers
// that hold at the same time may have equal tokens.
//
// RLock waits as Lock does, and is fair to both sides. While a writer waits, readers that arrive
// wait behind it. When a writer leaves, the readers that wait at that moment go in together, and
// the next writer follows when they have left. So a reader waits for one writer; a writer waits for
// the readers that hold the lock, and for one more group of readers for each writer ahead of it.
// Several callers of Lock in one client, one after the other, may count as one writer, as they do
// for Lock in another client: eight, or some more before the client has heard that others wait. 256
// readers are woken up at once. Whatever breaks the order among writers, such as an arbiter that does
// not answer or a slow client, breaks this order too.
//
// A reader cannot become a writer without releasing the lock: two readers that waited for each
// other to leave would wait for ever. If ctx carries a held lock of this client and name, by Lock
// or RLock, the error is ErrInvalid at once, because a writer may be waiting between the two. The
// error is ErrInvalid also with WithoutQueue, with WithAlso, and in ZooKeeper and etcd; Detach of
// the lock returns it too. All other errors, and what is left after one, are those of Lock;
// Holder.Shared says that readers are in the way.
func (c *Client) RLock(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, append(slices.Clip(options), WithShared()))
}

// LockAll acquires all names, or none of them, as one lock. That lock has one validity, one context
// and one token, and is lost as soon as any of its names is lost on too many nodes. While it is
// held, nobody else holds any of the names, by Lock, LockAll or another library. The token is
// larger than all earlier tokens of each name, and smaller than all later ones. Calls for several
// names do not deadlock with each other, nor with calls for one of them, whatever the order of the
// names. Nested calls can, as with any lock.
//
// LockAll waits as Lock does, in the wait queue for one of the names that are held, and tries for
// all when its turn has come; it holds none while it waits. If another name is held then, it goes
// to the queue for that name, at the place that its age gives it there. Meanwhile others may take
// the names, one or several at a time, and never leave all of them free. So a call that has lost
// several turns takes the names one by one, in sorted order and each in its queue. When it has the
// last of them, it makes one attempt for all, which is the lock. It waits for the callers that are
// ahead of it in the queue for each name, and is not starved.
//
// While a call takes names one by one, others wait for the names that it has, and are told that
// this client holds them. These are not locks of the program: Held, Stats (but for Tries) and
// Config.Observer do not know of them. LockAll gives them back when ctx is done or the client is
// closed, and waits for that as Unlock does. It also gives them back, and begins anew, when one is
// lost, when the attempt for all fails, or when it has not got all in 10 s, then 20 s and so on up
// to MaxHold, because a holder of one of the names may be waiting for another. With WithoutQueue it
// never takes names one by one.
//
// A name that is given twice counts once. There are 64 names at most; each costs a node a few µs in
// a step. In a Redis Cluster all names must be in one slot: give them one hash tag, as in
// {order-7}/stock and {order-7}/payment. ZooKeeper and etcd lock one name at a time. The error
// wraps ErrInvalid if the names break these rules, and nothing was sent. All other errors, and what
// is left after one, are those of Lock. The Name of a *QuorumError is one that is held, if one is.
func (c *Client) LockAll(ctx context.Context, names []string, options ...Option) (*Lock, error) {
	if len(names) == 0 {
		return nil, invalid("LockAll has no names: pass one or more")
	}
	return c.lock(ctx, detached, names[0], true, append(slices.Clip(options), WithAlso(names[1:]...)))
}

// Acquire takes one of k permits of name, and waits in the wait queue while all are taken. Permits
// and the lock of the same name do not exclude each other: the holder of one is not in the way of a
// caller that wants the other. Other libraries do not exclude permits either.
//
// Each permit is a slot, from 0 to k-1, which one holder has at a time: Slot may stand for a port,
// a licence or a shard. All that is said of a lock goes for the slot: it has a validity, is
// renewed, and may be lost. Its token is larger than all earlier tokens of the same slot, so a
// resource that is guarded by tokens must guard each slot by itself.
//
// k is stored nowhere. Callers should agree on it; if they do not, the largest k counts, and a
// caller that gives a smaller one waits until one of its slots is free. Callers that are behind it in
// the queue wait as long, even if a slot beyond those is free. To change a limit, give another k:
// permits beyond it end when they are released. k is from 1 to 256.
//
// Callers get permits in the order of their arrival. If there are several nodes, the one that keeps
// the queue says which slot, and then the others are asked for it: one step more than for a lock. If
// that node does not answer, the next one is asked, and so on, which takes a step each.
//
// If ctx carries a held permit of this client and name, Acquire returns ErrInvalid at once: callers
// that each hold one and wait for another would wait for each other. TryLock with WithPermits does
// not wait, and takes another permit if one is free. ZooKeeper and etcd have no permits: the error
// wraps ErrInvalid. All else is as with Lock, the other errors and what is left after one too; the
// Holder of a *QuorumError has the slot that may become free first.
func (c *Client) Acquire(ctx context.Context, name string, k int, options ...Option) (*Lock, error) {
	return c.lock(ctx, detached, name, true, append(slices.Clip(options), WithPermits(k)))
}

// do runs fn while it holds the lock, which it gets as lock does.
func (c *Client) do(ctx context.Context, name string, fn func(ctx context.Context) error, wait bool, options []Option) (err error) {
	if fn == nil {
		return invalid("fn is nil: pass the function to run while the lock is held")
	}
	lock, err := c.lock(ctx, bound, name, wait, options)
	if err != nil {
		return err
	}
	// This is deferred, so that the lock is also released when fn panics or calls runtime.Goexit.
	defer func() { err = join(err, lock.Unlock(ctx)) }()
	if lock.Err() != nil {
		return nil // Unlock returns it
	}
	return fn(lock.Context())
}

// join returns fn's error, joined with that of the release if there is one. An fn that returns the cause
// of its ctx has that error already, and it is said once.
func join(ofFn, ofRelease error) error {
	if ofRelease == nil || errors.Is(ofFn, ofRelease) {
		return ofFn
	}
	return errors.Join(ofFn, ofRelease)
}

// lock acquires the lock. It waits for other holders only if wait is set.
func (c *Client) lock(ctx context.Context, b binding, name string, wait bool, options []Option) (*Lock, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	key, err := c.config.key(name)
	if err != nil {
		return nil, err
	}
	if err := c.enter(); err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	defer c.calls.Done()
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
		err = call.tryUnqueued(wait)
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

// refuseHeld returns an error if the ctx of the call carries the lock that the call is to wait for,
// or a lock that shares a name with it.
func (c *call) refuseHeld() error {
	// rule: no-wait-for-itself
	lock, is := held(c.ctx, func(l *Lock) bool { return l.client == c.client && l.call.overlaps(c) })
	name := c.name
	if is && c.several != nil {
		name = c.several.names[slices.IndexFunc(c.several.keys, lock.call.has)]
	}
	switch {
	case is && c.permits != nil:
		return invalid("a permit of %q: the ctx of this call carries one, and callers that each hold one and wait for another would wait for each other: use the permit that is held, TryLock, or a ctx that was not made under it", c.name)
	case is:
		return invalid("lock %q: the ctx of this call carries it, so the call would wait for itself: ask Held and go on without locking, or pass a ctx that was not made under the lock", name)
	}
	return nil
}

// splitTries is how often a call that does not wait tries again after the votes were split.
const splitTries = 6

// tryUnqueued makes tries without a place in the wait queue. A call that waits makes them at random
// times until one succeeds, and barges in before clients that are queued. A call that does not wait
// makes another try only if the votes were split: otherwise, of several callers that try at the
// same moment, all might be told that another has the lock.
func (c *call) tryUnqueued(wait bool) error {
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

// Locker is the part of Client that most programs need. A program that takes a Locker in place of a
// *Client can be tested with the *redlatchtest.Client, which locks in memory. The methods are those
// of Client, and safe for concurrent use.
type Locker interface {
	Lock(ctx context.Context, name string, options ...Option) (*Lock, error)
	TryLock(ctx context.Context, name string, options ...Option) (*Lock, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error
	TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...Option) error
}

var _ Locker = (*Client)(nil)
