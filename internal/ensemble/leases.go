package ensemble

import (
	"sync"
	"time"
)

// Leases are those that a client has, or may have, by their holder ids. While there is one, the
// client's session is not ended when it is closed.
type Leases struct {
	mu sync.Mutex // guards of
	of map[string]lease
}

// lease is one of them.
type lease struct {
	// until is when the last TTL ends that was sent.
	until time.Time
	// version is that of the last write known.
	version int64
	// detached: it is being ended when its TTL is over.
	detached bool
}

// NewLeases returns none.
func NewLeases() *Leases { return &Leases{of: make(map[string]lease)} }

// Any reports whether there is one.
func (l *Leases) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of) > 0
}

// Lengthen notes that id is to be kept for ttl from now on, and returns for how long it is to be
// kept by all that was noted before, in whole milliseconds.
func (l *Leases) Lengthen(id string, ttl time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, known := time.Now(), l.of[id]
	// rule: extend-never-shortens
	ttl = max(ttl, known.until.Sub(now))
	ttl = (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
	known.until = now.Add(ttl)
	l.of[id] = known
	return ttl
}

// Written notes the version of a write that is known to be executed, unless the lease was forgotten
// meanwhile; Version returns it.
func (l *Leases) Written(id string, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.of[id]; ok {
		known.version = version
		l.of[id] = known
	}
}

// Version is what Written was told last, or 0.
func (l *Leases) Version(id string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[id].version
}

// Forget notes that the lease has ended.
func (l *Leases) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, id)
}

// left is how long the lease is to be kept still.
func (l *Leases) left(id string) (left time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept, known := l.of[id]
	return time.Until(kept.until), known
}

// forgetOver is Forget for a lease whose time is over. It reports false if it was extended meanwhile.
func (l *Leases) forgetOver(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept, known := l.of[id]; known && time.Until(kept.until) > 0 {
		return false
	}
	delete(l.of, id)
	return true
}

// detach reports whether nobody sees to the end of the lease yet.
func (l *Leases) detach(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept, known := l.of[id]
	first := known && !kept.detached
	kept.detached = true
	if known {
		l.of[id] = kept
	}
	return first
}

// Expiry ends the leases of locks that nobody renews in this process: the client's session goes on
// for as long as the process does, and would keep them.
type Expiry struct {
	// Run runs f in the background, unless the client is closed; Pause reports false when the
	// client's life has ended.
	Run   func(f func()) bool
	Pause func(d time.Duration) bool
	// End looks at the lease, asks whether its time is over, and deletes it as it has found it. It
	// reports whether it is not there any more, or another session's, and is called until then.
	End func(key, id string, over func() bool) bool
}

// retry is the pause between two calls of Expiry.End.
const retry = 20 * time.Millisecond

// Start begins, where that has not been done for the id.
func (e Expiry) Start(l *Leases, key, id string) {
	if !l.detach(id) {
		return
	}
	e.Run(func() {
		for {
			left, known := l.left(id)
			if !known || !e.Pause(max(left, retry)) {
				return
			}
			// It may be extended by its id, here: that is noted before it is sent, so that who has seen an
			// extension knows of it.
			over := func() bool {
				left, known := l.left(id)
				return known && left <= 0
			}
			if over() && e.End(key, id, over) && l.forgetOver(id) {
				return
			}
		}
	})
}
