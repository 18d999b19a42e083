package quorum

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// Lease is what one holder has: the keys that an attempt left on the nodes, and whether it may
// rely on them. It is safe for concurrent use.
type Lease struct {
	*keys
	// token is the holder's, and since, when it got it. Neither changes once the lease is held.
	token uint64
	since clock.Instant

	state state // keys.mu guards this and what follows
	// reason is why it is held no more, and final the end of the validity that it had then.
	reason error
	final  clock.Instant
	// limit is for how long it may be held when an extension begins; 0 for any.
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
// What ends the keys may also come where the lease is held.
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

// over reports that the keys are not the lease's any more.
func (s state) over() bool { return s >= failed }

// become makes the state next. It is why the lease is held no more, if it was. The caller
// holds l.mu.
func (l *Lease) become(next state, reason error) (was bool) {
	if was = l.state == held; was {
		l.reason, l.final = reason, l.until
	}
	l.state = next
	return was
}

// Token returns the fencing token.
func (l *Lease) Token() uint64 { return l.token }

// Since returns when the holder got it.
func (l *Lease) Since() clock.Instant { return l.since }

// Limit has no extension begin when the lease was held for d. What is decided before may be sent
// much later, where the process stalls.
func (l *Lease) Limit(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = d
}

// Until returns the end of the validity; of a lease that is held no more, of that which it
// had: an extension whose answers came afterwards does not count.
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state > held {
		return l.final
	}
	return l.until
}

// Held reports whether the lease is held, by its state: who asks compares Until with the clock.
// reason is why it is not.
func (l *Lease) Held() (ok bool, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == held, l.reason
}

// Lose has the holder rely on the lease no more, because of reason. It returns why it is held
// no more, and whether that is new.
func (l *Lease) Lose(reason error) (last error, first bool) { return l.leave(lost, reason) }

// Unlock is Lose for a holder that is done.
func (l *Lease) Unlock(reason error) (last error, first bool) { return l.leave(unlocked, reason) }

func (l *Lease) leave(next state, reason error) (last error, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == held {
		first = l.become(next, reason)
	}
	return l.reason, first
}

// Keep has the keys stay though their holder is done. ok is false where it is not, or they are
// not its own any more.
func (l *Lease) Keep() (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok = l.state == unlocked; ok {
		l.become(kept, nil)
	}
	return ok
}

// Kept reports whether the keys are kept for a holder that is done.
func (l *Lease) Kept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == kept
}

// Detach ends the lease and leaves its keys where they are, for somebody else to extend
// and to release by the holder id. ok is false when it was over before.
func (l *Lease) Detach() (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ok = !l.state.over(); ok {
		l.become(detached, nil)
	}
	return ok
}
