package etcd

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// sight is a key as it was at a revision: it was last written at the revision written, or was not there
// if that is 0.
type sight struct {
	key               string
	written, revision int64
}

// watch tells those who wait for the lock key of the first change of what was seen, or that there may
// have been one.
func (s *store) watch(key string, seen sight) { s.watchUntil(s.life, key, seen) }

// watchUntil is watch, but ends when until does. Others who wanted to be told are told then, and
// watch for themselves.
func (s *store) watchUntil(until context.Context, key string, seen sight) {
	if until.Err() != nil || !s.watches.Begin(seen.key) {
		return
	}
	s.run(func() {
		ctx, cancel := context.WithCancel(s.life)
		defer cancel()
		defer context.AfterFunc(until, cancel)()
		changed := s.awaitChange(ctx, seen)
		if !changed && !s.rest() {
			return
		}
		s.watches.Over(seen.key)
		s.tell(key)
	})
}

// awaitChange waits for a change. It reports false if the watch has failed. It watches from now on,
// because servers tell of earlier changes up to 0.1 s late. If anything has happened since the key was
// seen, it looks at the key once more: a place in a wait queue that is gone never changes again.
func (s *store) awaitChange(ctx context.Context, seen sight) bool {
	// A member that has lost its leader says so.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// Watches share a stream, and servers of version 3.4 refuse all new ones once they have forgotten the token that it began with.
	stream := s.stream.Load()
	ctx = metadata.AppendToOutgoingContext(ctx, "redlatch-stream", strconv.FormatInt(stream, 10))
	for r := range s.client.Watch(ctx, seen.key, clientv3.WithCreatedNotify()) {
		switch {
		case r.Err() != nil:
			s.stream.CompareAndSwap(stream, stream+1)
			return false
		case len(r.Events) > 0:
			return true
		case r.Created && r.Header.GetRevision() > seen.revision:
			if now, err := s.written(ctx, seen.key); err != nil || now != seen.written {
				return err == nil
			}
		}
	}
	return false
}

// written returns the revision at which a key was last written, 0 if it is not there.
func (s *store) written(ctx context.Context, key string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	r, err := s.client.Get(ctx, key, clientv3.WithKeysOnly())
	if err != nil || len(r.Kvs) == 0 {
		return 0, err
	}
	return r.Kvs[0].ModRevision, nil
}
