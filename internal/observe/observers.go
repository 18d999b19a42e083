// Package observe has what the loops over Client.Observe and ObservePermits share: who is to be told that a
// key may have changed, and what the answers of several nodes say of its holder.
package observe

import (
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/node"
)

// Observers are the loops that are told when their key may have changed. The zero value has none. They
// are safe for concurrent use.
type Observers struct {
	// some is how many there are, so that a client without any pays nothing.
	some atomic.Int64
	mu   sync.Mutex // guards of
	of   map[string]map[chan struct{}]bool
}

// Add returns a channel that receives when key may have changed, until stop is called.
func (o *Observers) Add(key string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[string]map[chan struct{}]bool)
	}
	if o.of[key] == nil {
		o.of[key] = make(map[chan struct{}]bool)
	}
	o.of[key][c] = true
	o.some.Add(1)
	return c, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.of[key], c); len(o.of[key]) == 0 {
			delete(o.of, key)
		}
		o.some.Add(-1)
	}
}

// Changed tells the observers of key that it may have changed, or all observers where key is "". The key
// of a permit is that of its queue to them, which stands for all permits of a name. It does not block.
func (o *Observers) Changed(key string) {
	if o.some.Load() == 0 {
		return
	}
	if queue, _, _, ok := node.CutSlot(key); ok {
		key = queue
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if key != "" {
		tell(o.of[key])
		return
	}
	for _, channels := range o.of {
		tell(channels)
	}
}

// tell wakes the observers that have these channels.
func tell(channels map[chan struct{}]bool) {
	for c := range channels {
		select {
		case c <- struct{}{}:
		default: // it has not looked since the last change, and will
		}
	}
}
