package redlatch

import (
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/node"
)

// observers are the loops over Client.Observe and ObservePermits that are told when their key may have changed. The zero
// value has none.
type observers struct {
	// some is how many there are, so that who has none pays nothing.
	some atomic.Int64
	mu   sync.Mutex // guards of
	of   map[string]map[chan struct{}]bool
}

// add returns a channel on which one learns that key may have changed, until stop is called.
func (o *observers) add(key string) (changed <-chan struct{}, stop func()) {
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

// changed tells that key may have changed, or any where key is "". That of a permit is told to those
// who observe all of its name. It does not block.
func (o *observers) changed(key string) {
	if o.some.Load() == 0 {
		return
	}
	if queue, _, _, ok := node.CutSlot(key); ok {
		key = queue
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, channels := range o.of {
		if key != "" && k != key {
			continue
		}
		for c := range channels {
			select {
			case c <- struct{}{}:
			default: // who has not looked since the last one will
			}
		}
	}
}
