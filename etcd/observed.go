package etcd

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// observations are what this client has seen of others' locks, by its own clock: for how long a
// lease has not been extended, and for how long the first in a queue has left a free lock alone.
type observations struct {
	mu   sync.Mutex // guards seen
	seen map[string]seen
}

// maxObserved bounds it; what is forgotten costs a TTL.
const maxObserved = 4096

// seen is a key at a revision.
type seen struct {
	key      string
	revision int64
	since    time.Time
}

func newObservations() *observations { return &observations{seen: make(map[string]seen)} }

// lease notes a lease of which an answer has come, and returns how long it may still run.
func (o *observations) lease(p place, c contents) (left time.Duration) {
	// The holder's own time began before the revision was there to be seen.
	return o.left(p, seen{key: p.lease(), revision: c.lease}, c.ttl)
}

// head notes the first in the queue for a free lock, and returns how long it may leave that alone.
func (o *observations) head(p place, first waiter) (left time.Duration) {
	return o.left(p, seen{key: first.key, revision: first.number}, script.Grace)
}

func (o *observations) left(p place, now seen, lasts time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now.since = time.Now()
	before, ok := o.seen[string(p)]
	if !ok || before.key != now.key || before.revision != now.revision {
		if len(o.seen) >= maxObserved {
			clear(o.seen)
		}
		o.seen[string(p)], before = now, now
	}
	return before.since.Add(lasts).Sub(now.since)
}

// forget notes that this client holds the lock.
func (o *observations) forget(p place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, string(p))
}

// leases are those that this client has, or may have.
type leases struct {
	mu sync.Mutex // guards of
	of map[string]kept
}

// kept is one of them.
type kept struct {
	// until is when the last TTL ends that was sent.
	until time.Time
	// revision is the last write known.
	revision int64
}

func newLeases() *leases { return &leases{of: make(map[string]kept)} }

func (l *leases) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of) > 0
}

// lengthen notes that id is to be kept for ttl from now on, and returns for how long it is to be
// kept by all that was noted before, and the last write known.
func (l *leases) lengthen(id string, ttl time.Duration) (time.Duration, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, known := time.Now(), l.of[id]
	// rule: extend-never-shortens
	ttl = max(ttl, known.until.Sub(now))
	known.until = now.Add(ttl)
	l.of[id] = known
	return ttl, known.revision
}

// written notes a write that is known to be executed, unless the lease was forgotten meanwhile.
func (l *leases) written(id string, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.of[id]; ok {
		known.revision = max(known.revision, revision)
		l.of[id] = known
	}
}

func (l *leases) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, id)
}
