package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watches are the keys whose next change this client is told of.
type watches struct {
	mu sync.Mutex // guards on
	on map[string]bool
}

// begin reports whether nobody watches the key yet.
func (w *watches) begin(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.on[key]
	w.on[key] = true
	return first
}

func (w *watches) over(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.on, key)
}

// watch tells those who wait for the lock key of the first change of watched after the revision,
// or that nobody can say whether there was one.
func (s *store) watch(key, watched string, revision int64) {
	if !s.watches.begin(watched) {
		return
	}
	s.run(func() {
		changed := s.awaitChange(watched, revision)
		if !changed && !s.rest() {
			return
		}
		s.watches.over(watched)
		s.tell(key)
	})
}

// awaitChange reports false where the watch has failed.
func (s *store) awaitChange(watched string, revision int64) bool {
	// A member that has lost its leader says so.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.life))
	defer cancel()
	for r := range s.client.Watch(ctx, watched, clientv3.WithRev(revision+1)) {
		if r.Err() != nil {
			return false
		}
		if len(r.Events) > 0 {
			return true
		}
	}
	return false
}
