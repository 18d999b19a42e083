package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch tells those who wait for the lock key of the first change of watched after the revision, or
// that there may have been one.
func (s *store) watch(key, watched string, revision int64) {
	s.watchUntil(s.life, key, watched, revision)
}

// watchUntil is watch, but ends when until does. Others who wanted to be told are told then, and
// watch for themselves.
func (s *store) watchUntil(until context.Context, key, watched string, revision int64) {
	if until.Err() != nil || !s.watches.Begin(watched) {
		return
	}
	s.run(func() {
		ctx, cancel := context.WithCancel(s.life)
		defer cancel()
		defer context.AfterFunc(until, cancel)()
		changed := s.awaitChange(ctx, key, watched, revision)
		if !changed && !s.rest() {
			return
		}
		s.watches.Over(watched)
		s.tell(key)
	})
}

// awaitChange waits for a change. It reports false if the watch has failed. It watches from now on,
// because servers tell of earlier changes up to 0.1 s late. If something has happened since the
// revision, it tells at once.
func (s *store) awaitChange(ctx context.Context, key, watched string, revision int64) bool {
	// A member that has lost its leader says so.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range s.client.Watch(ctx, watched, clientv3.WithCreatedNotify()) {
		switch {
		case r.Err() != nil:
			return false
		case len(r.Events) > 0:
			return true
		case r.Created && r.Header.GetRevision() > revision:
			s.tell(key)
		}
	}
	return false
}
