package etcd

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// observations are what this client has seen of others' locks, by its own clock: how long a lease
// has not been extended, and how long the first in a queue has left alone a lock that it may have.
type observations struct {
	mu   sync.Mutex // guards seen
	seen map[string]seen
}

// maxObserved bounds the map. An observation that is forgotten costs a TTL.
const maxObserved = 4096

// seen is a key at a revision.
type seen struct {
	revision int64
	since    time.Time
}

func newObservations() *observations { return &observations{seen: make(map[string]seen)} }

// lease notes a lease that an answer has shown, and returns how much longer it may run.
func (o *observations) lease(p place, c contents) (left time.Duration) {
	// The holder's own time began before the revision could be seen.
	if left = o.left(p.lease(), c.lease, c.ttl); left > 0 && len(c.waiters) > 0 {
		o.forget(c.waiters[0].key)
	}
	return left
}

// head notes the first in the queue for a lock that it may have, and returns how much longer it may
// leave the lock alone.
func (o *observations) head(first waiter) (left time.Duration) {
	return o.left(first.key, first.number, script.Grace)
}

func (o *observations) left(key string, revision int64, lasts time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	before, ok := o.seen[key]
	if !ok || before.revision != revision {
		if len(o.seen) >= maxObserved {
			clear(o.seen)
		}
		before = seen{revision, now}
		o.seen[key] = before
	}
	return before.since.Add(lasts).Sub(now)
}

// forget forgets what was seen of a key.
func (o *observations) forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, key)
}

// guesses says which locks are likely to be free and unwanted: all that are not known to be
// otherwise.
type guesses struct {
	mu    sync.Mutex // guards wrong
	wrong map[place]bool
}

// may reports whether to guess that the lock is free and unwanted.
func (g *guesses) may(p place) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.wrong[p]
}

// found notes what was found of a lock. A note that is forgotten costs a request.
func (g *guesses) found(p place, c *contents) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.holder == "" && !c.gated && len(c.waiters) == 0 {
		delete(g.wrong, p)
		return
	}
	if len(g.wrong) >= maxObserved {
		clear(g.wrong)
	}
	g.wrong[p] = true
}
