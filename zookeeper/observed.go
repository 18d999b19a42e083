package zookeeper

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// observations are what this client has seen of others' locks, by its own clock: how long a lease
// has not been extended, and how long the first in a queue has left alone a lock that it may have.
type observations struct {
	mu     sync.Mutex // guards what follows
	leases map[string]leaseSeen
	heads  map[string]headSeen
}

// maxObserved bounds each map. An observation that is forgotten costs a TTL.
const maxObserved = 4096

// leaseSeen is a lease at one version, in one session.
type leaseSeen struct {
	holder         string
	version, moves int32
	ttl            time.Duration
	since          time.Time
}

type headSeen struct {
	node  string
	since time.Time
}

func newObservations() *observations {
	return &observations{leases: make(map[string]leaseSeen), heads: make(map[string]headSeen)}
}

// lease notes a lease that an answer has shown, and returns how much longer it may run.
func (o *observations) lease(key string, found leaseSeen) (left time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	seen, ok := o.leases[key]
	if !ok || seen.holder != found.holder || seen.version != found.version || seen.moves != found.moves {
		if len(o.leases) >= maxObserved {
			clear(o.leases)
		}
		found.since = now
		o.leases[key], seen = found, found
	}
	// The holder's own time began before the version could be seen.
	if left = seen.since.Add(seen.ttl).Sub(now); left > 0 {
		delete(o.heads, key)
	}
	return left
}

// head notes that node is the first in the queue for a lock that it may have, and returns how much
// longer it may leave the lock alone.
func (o *observations) head(key, node string) (left time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	seen, ok := o.heads[key]
	if !ok || seen.node != node {
		if len(o.heads) >= maxObserved {
			clear(o.heads)
		}
		seen = headSeen{node: node, since: now}
		o.heads[key] = seen
	}
	return seen.since.Add(script.Grace).Sub(now)
}

// taken notes that this client holds the lock.
func (o *observations) taken(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.heads, key)
	delete(o.leases, key)
}
