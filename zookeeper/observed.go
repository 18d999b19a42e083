package zookeeper

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// observations are what this client has seen of others' locks, by its own clock: for how long a
// lease has not been extended, and for how long the first in a queue has left a free lock alone.
type observations struct {
	mu     sync.Mutex // guards what follows
	leases map[string]leaseSeen
	heads  map[string]headSeen
}

// maxObserved bounds each; what is forgotten costs a TTL.
const maxObserved = 4096

type leaseSeen struct {
	holder  string
	version int32
	ttl     time.Duration
	since   time.Time
}

type headSeen struct {
	node  string
	since time.Time
}

func newObservations() *observations {
	return &observations{leases: make(map[string]leaseSeen), heads: make(map[string]headSeen)}
}

// lease notes a lease of which an answer has come, and returns how long it may still run.
func (o *observations) lease(key, holder string, version int32, ttl time.Duration) (left time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	seen, ok := o.leases[key]
	if !ok || seen.holder != holder || seen.version != version {
		if len(o.leases) >= maxObserved {
			clear(o.leases)
		}
		seen = leaseSeen{holder: holder, version: version, ttl: ttl, since: now}
		o.leases[key] = seen
	}
	// The holder's own time began before the version was there to be seen.
	return seen.since.Add(seen.ttl).Sub(now)
}

// head notes that node is the first in the queue for a free lock, and returns how long it may
// leave that alone.
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

// held notes that the lock is not free.
func (o *observations) held(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.heads, key)
}

// taken notes that this client holds the lock.
func (o *observations) taken(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.heads, key)
	delete(o.leases, key)
}

// watches are the nodes that this client is to be told of.
type watches struct {
	mu sync.Mutex // guards on
	on map[string]bool
}

// begin reports whether nobody watches the node at path yet. It is called before the request for
// it, as the notice may come before the answer is read.
func (w *watches) begin(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.on[path]
	w.on[path] = true
	return first
}

func (w *watches) fired(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.on, path)
}
