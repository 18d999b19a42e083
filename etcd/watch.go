package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch tells those who wait for the lock key of the first change of watched after the revision,
// and that there may have been one.
func (s *store) watch(key, watched string, revision int64) {
	s.watchUntil(s.life, key, watched, revision)
}

// watchUntil is watch that ends when until does: others who wanted to be told are told then, and
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

// awaitChange reports false where the watch has failed. It watches from now on: servers tell of what
// has happened before it as late as 0.1 s. Where something has since the revision, it tells at once.
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
