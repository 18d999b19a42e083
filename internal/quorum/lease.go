package quorum

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Lease is what one holder has: the keys that an attempt left on the nodes, and whether it may
// rely on them. It is safe for concurrent use.
type Lease struct {
	*keys
	// token is the holder's token, and since is when the holder got it. Neither changes once the
	// lease is held.
	token uint64
	since clock.Instant

	state state // keys.mu guards this and what follows
	// reason is why the lease is held no more, and final is the end of the validity that it had
	// then.
	reason error
	final  clock.Instant
	// limit is how long the lease may have been held when an extension begins; 0 means any time.
	limit time.Duration
}

// state is what became of a lease.
//
//	acquiring ── win ──→ held ──┬── Lose ────→ lost ─────┐
//	    │                       └── Unlock ──→ unlocked ─┼── Release ─→ released
//	    │                                         │ Keep ├── Transfer → transferred
//	    │                                         ↓      ├── Succeed ─→ transferred
//	    └─ giveUp ─→ failed                      kept ───┴── Detach ──→ detached
//
// Release, Transfer, Succeed and Detach may also follow held directly. Lapse is a Lose, and TakeOver is a
// Transfer of several leases.
type state uint8

const (
	acquiring state = iota // its attempt is under way
	held                   // a quorum stores its token, and its holder may rely on it
	lost                   // its validity ran out, or no quorum has it; its keys may be there
	unlocked               // its holder is done; its keys are about to be deleted
	kept                   // its holder is done; its keys are to stay for a while

	// From here on the lease has nothing to do with its keys any more.
	failed      // the attempt failed: what it may have left is deleted
	released    // its keys are deleted, or left to a waiter that was woken up
	transferred // its keys are replaced by another lease's, or are another's now
	detached    // its keys stay, for others to extend and to release
)

// over reports whether the lease has nothing to do with its keys any more.
func (s state) over() bool { return s >= failed }

// become makes next the lease's state. If the lease was held, reason says why it is held no more; it is
// nil where nobody holds by the lease who could ask. The caller holds l.mu.
func (l *Lease) become(next state, reason error) {
	if l.state == held {
		l.reason, l.final = reason, l.until
	}
	l.state = next
}

// Token returns the fencing token.
func (l *Lease) Token() uint64 { return l.token }

// Since returns when the holder got the lock.
func (l *Lease) Since() clock.Instant { return l.since }

// Limit forbids an extension to begin once the lease has been held for d. This is checked as the
// round begins: where the process stalls, a round may begin long after the decision to extend.
func (l *Lease) Limit(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = d
}

// Until returns the end of the validity. For a lease that is held no more, it is the end that the
// validity had then: an extension whose answers came afterwards does not count.
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state > held {
		return l.final
	}
	return l.until
}

// Held reports whether the lease's state is held; it does not look at the clock, which the caller
// compares with Until. reason is why the lease is not held.
func (l *Lease) Held() (ok bool, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == held, l.reason
}

// Lose makes the lease lost because of reason, if it is held. It returns why the lease is held no
// more, and whether this call is the first to end it.
func (l *Lease) Lose(reason error) (why error, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endHolding(lost, reason)
}

// Lapse is Lose because the validity runs out, which was seen to end at until. It does nothing where an
// extension has moved that end since.
func (l *Lease) Lapse(until clock.Instant, reason error) (why error, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !until.Reached(l.until) {
		return l.reason, false
	}
	return l.endHolding(lost, reason)
}

// Unlock is Lose for a holder that is done.
func (l *Lease) Unlock(reason error) (why error, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endHolding(unlocked, reason)
}

// endHolding is Lose or Unlock, by the next state. The caller holds l.mu.
func (l *Lease) endHolding(next state, reason error) (why error, first bool) {
	if first = l.state == held; first {
		l.become(next, reason)
	}
	return l.reason, first
}

// Keep makes the keys stay although their holder is done. It does nothing where the holder is not done,
// or the keys are not its own any more.
func (l *Lease) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == unlocked {
		l.become(kept, nil)
	}
}

// Kept reports whether the keys are kept for a holder that is done.
func (l *Lease) Kept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == kept
}

// Detach ends the lease and leaves its keys where they are, for somebody else to extend
// and to release by the holder id. It waits for the steps that are under way, for a step's time at
// most: a release by somebody else must not overtake them. ok is false when it was over before.
func (l *Lease) Detach() (ok bool) {
	over := make(chan struct{}, len(l.nodes))
	idle, ok := l.end(detached, func(int) { over <- struct{}{} })
	if !ok {
		return false
	}
	for range l.ending.asked - len(idle) {
		<-over
	}
	return true
}
