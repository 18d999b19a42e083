package ensemble

import "sync"

// Watches are the keys whose next change this client is told of. The zero value has none.
type Watches struct {
	mu sync.Mutex // guards on
	on map[string]bool
}

// Begin reports whether nobody watches the key yet. It is called before the request for it, as the
// notice may come before the answer is read.
func (w *Watches) Begin(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		w.on = make(map[string]bool)
	}
	first := !w.on[key]
	w.on[key] = true
	return first
}

// Over says that the notice has come, or never will.
func (w *Watches) Over(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.on, key)
}
