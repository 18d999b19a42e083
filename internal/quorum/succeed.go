package quorum

import "time"

// Succeed ends the lease in favour of one more holder, who wants the lock for ttl, with the same
// keys. The next lease's token is the next of the block of counters that the attempt asked for. ok
// is false when the block is used up; when ttl differs, or an attempt of the successor's own would
// have a validity that is longer by more than the drift; while an extension is under way; and when
// no quorum holds the key any more, which an extension whose caller has left may have found.
//
// A quorum stores the block's last counter, so the tokens of every other attempt are larger than
// the whole block, or smaller.
func (l *Lease) Succeed(ttl time.Duration) (next *Lease, ok bool) {
	now := l.engine.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := now.Until(l.until) >= ttl-2*Drift(ttl)
	if l.state.over() || l.token == l.stored || l.ttl != ttl || !fresh || l.underWay != nil || l.impossible() {
		return nil, false
	}
	l.become(transferred, nil)
	next = &Lease{keys: l.keys, token: l.token + 1, since: now, state: held}
	l.holder = next
	return next, true
}
