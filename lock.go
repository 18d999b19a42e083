package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// Lock is one acquisition of a lock. It is safe for concurrent use, and shares nothing with another
// Lock.
type Lock struct {
	client *Client
	// call is the call that acquired the lock.
	call *call
	// lease is what the call acquired, and holder is the lock as the wait queue knows it.
	lease  *quorum.Lease
	holder waitqueue.Holder
	// work is closed when what Campaign runs under this lead has returned. It is nil for any other
	// lock.
	work chan struct{}

	mu sync.Mutex // guards what follows; only the lease and the alarm are called while it is held
	// context is made when it is first asked for.
	context *lockContext
	// alarm rings when the next thing is to be done for the lock, until over.
	alarm clock.Alarm
	over  bool
	// renewal is when to renew next. renewing: a renewal is under way. failed is why the last renewal
	// failed, nil if it did not, or that an extension was refused because of MaxHold.
	renewal  clock.Instant
	renewing bool
	failed   error
	// unheard: no quorum answered when what was left of the lock was to be deleted.
	unheard bool
}

// Name returns the name that was locked; of several names, the one that was given first.
func (l *Lock) Name() string { return l.call.name }

// Token returns the fencing token. It is larger for every later holder of the same lock, is below
// 2^53, and does not change when the lock is extended. A resource that refuses every token that is
// smaller than one it has seen is safe from a holder that does not know yet that it has lost its
// lock. Callers that hold in turn by one attempt have the tokens that the attempt was granted: if
// another holder gets the lock too meanwhile, because a node's clock was stepped, its token is
// larger than all of them.
//
// Nodes remember the last token of a name for as long as a node that restarts is kept out, MaxTTL
// and 4 s. If nobody used the name for so long, or a node lost its memory, the next token comes
// from the nodes' clocks. Tokens therefore increase as long as the nodes' clocks are within
// MaxTTL/2 + 1 s of each other, for readers also within 4 s, and those of a master and a replica that
// takes its place also within MaxTTL - 3 s; how far the clients' clocks are off does not matter.
func (l *Lock) Token() uint64 { return l.lease.Token() }

// Until returns the time until which the lock is certainly held, unless it is released. It is by
// the local clock and has its monotonic reading: compare it with Before, After and Sub; UTC, Round
// and marshalling strip that reading. Until does not take into account that the machine was
// suspended; Err and Context do.
func (l *Lock) Until() time.Time { return l.lease.Until().Mono }

// Err returns nil while the lock is held, and otherwise an error that wraps ErrLost or ErrReleased.
// It asks the local clock, not the network.
func (l *Lock) Err() error {
	held, why := l.lease.Held()
	until := l.lease.Until()
	// rule: holder-knows
	if held && l.client.clock.Now().Reached(l.lostAt(until)) {
		return l.lapse(until)
	}
	if held && l.lease.Impossible() { // an extension may have got the answers that say so after its caller left
		return l.lose(errImpossible)
	}
	return why
}

var (
	errRanOut     = errors.New("its validity ran out")
	errImpossible = errors.New("no quorum of nodes holds it any more")
	errBusy       = errors.New("it is being extended already")
)

// ranOut returns why the validity ran out: because of MaxHold where that forbade an extension or the next
// renewal, otherwise with what the nodes answered to the last one.
func (l *Lock) ranOut() error {
	r := &l.call.settings
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.failed, ErrMaxHold) || r.renewal && !l.renewing && l.failed == nil && l.lease.Since().Add(r.maxHold).Until(l.renewal) >= 0 {
		return fmt.Errorf("%w: %v, and it was not renewed beyond that: raise it for longer work", ErrMaxHold, r.maxHold)
	}
	if l.failed != nil {
		return fmt.Errorf("%w: the last renewal failed: %v", errRanOut, l.failed)
	}
	return errRanOut
}

// lostAt returns when the lock counts as lost whose validity ends at until.
func (l *Lock) lostAt(until clock.Instant) clock.Instant {
	return until.Add(-l.call.settings.guard)
}

// lapse is lose for a validity that ends at until, unless an extension has moved that end since it was
// looked at.
func (l *Lock) lapse(until clock.Instant) error {
	return l.loseBy(l.ranOut(), func(why error) (error, bool) { return l.lease.Lapse(until, why) })
}

// lose makes the lock lost, if it was held, and returns why it is no longer held.
func (l *Lock) lose(reason error) error { return l.loseBy(reason, l.lease.Lose) }

func (l *Lock) loseBy(reason error, lose func(why error) (error, bool)) error {
	// Close waits until the Observer was told, unless it has ended the lock by now.
	if l.client.enterWith(l) == nil {
		defer l.client.calls.Done()
	}
	why, first := lose(fmt.Errorf("%w: %q: %w", ErrLost, l.call.name, reason))
	if first {
		l.endContext(why)
		// Work may go on until the end of the guard, so what is left of the keys is released after it,
		// and not before the holders of other locks that were lost at the same time are told.
		now := l.client.clock.Now()
		l.setAlarm(now, max(time.Millisecond, now.Until(l.lease.Until())))
		l.client.waitqueue.LetGo(&l.holder)
		l.lost(why, reason)
	}
	return why
}

// unlock ends the holding of the lock because of reason, if it was held. It returns why the lock is no
// longer held; first reports whether this call ended it.
func (l *Lock) unlock(reason error) (why error, first bool) {
	why, first = l.lease.Unlock(reason)
	if first {
		l.endContext(why)
	}
	return why, first
}

// endContext ends the lock's context, if it was asked for.
func (l *Lock) endContext(why error) {
	l.mu.Lock()
	c := l.context
	l.mu.Unlock()
	if c != nil {
		c.cancel(why)
	}
}

// setAlarm makes the alarm ring d after now, which may be a while ago, unless the lock is over.
func (l *Lock) setAlarm(now clock.Instant, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.alarm.ResetSince(now.Mono, d)
	}
}

// Extend prolongs the lock to ttl from now, if that is later than its present end; it never
// shortens the lock. It waits for a quorum, for NodeTimeout at most (with Config.Replicas, twice its
// Timeout more), or until ctx is done; before that, for a renewal of the lock that is under way,
// which takes as long or a twelfth of the TTL at most, and for other calls of Extend, which take as
// long each. An extension counts if the quorum's answers came before the validity ran out. They also
// count after ctx is done: Until then says so, and no Observer is told.
//
// Errors: ErrLost or ErrReleased if the lock was no longer held, even if it is free by now: Extend
// does not take a lapsed lock again. ErrClosed while Close is under way. ErrInvalid for a ttl beyond
// MaxTTL. ErrInvalid and ErrMaxHold for a lock that was held for longer than MaxHold. If no quorum
// said yes, ErrNoQuorum, ErrRefused or ErrNotAdmitted in a *QuorumError: the lock is then held for as
// long as before. The cause of ctx: it is held for as long as before, or is still extended.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	ttl, err := wholeTTL("ttl", ttl, l.client.config.MaxTTL)
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.client.enter(); err != nil {
		return fmt.Errorf("extend %q: %w", l.call.name, err)
	}
	defer l.client.calls.Done()
	return l.extend(ctx, ttl)
}

func (l *Lock) extend(ctx context.Context, ttl time.Duration) error {
	end, votes := l.lease.Extend(ctx, ttl)
	return l.afterExtension(ctx, end, votes)
}

// afterExtension acts on how an extension ended, possibly because ctx was done.
func (l *Lock) afterExtension(ctx context.Context, end quorum.Extension, votes []vote.Answer) (err error) {
	switch {
	case l.lease.Impossible():
		return l.lose(errImpossible)
	case end == quorum.Extended:
		l.extended(nil)
		return l.Err()
	case end == quorum.Busy: // the extension that is under way reports its own end
		return errBusy
	}
	if err := l.Err(); err != nil {
		return err // the lock has ended meanwhile
	}
	switch {
	case end == quorum.Overlong:
		err = fmt.Errorf("%w: %q is not extended any more: %w: %v", ErrInvalid, l.call.name, ErrMaxHold, l.call.settings.maxHold)
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
		return err
	case ctx.Err() != nil:
		err = fmt.Errorf("extend %q: %w", l.call.name, context.Cause(ctx))
	default:
		err = newQuorumError("extend", l.call.name, l.client.answers(votes))
	}
	l.extended(err)
	return err
}

// renewer returns what renews the call's lock together with others, or nil if the lock is renewed
// by itself or not at all.
func (c *call) renewer() quorum.Renewer {
	if !c.settings.renewal || c.several != nil || c.settings.shared {
		return nil
	}
	return c.client.renewals
}

// changed tells this client's observers that the lock of the call may have another holder.
func (c *call) changed() {
	if c.several == nil {
		c.client.observers.Changed(c.key)
		return
	}
	for _, key := range c.several.keys {
		c.client.observers.Changed(key)
	}
}
