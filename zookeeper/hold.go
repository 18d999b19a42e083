package zookeeper

import (
	"context"
	"errors"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// Extend implements quorum.Voter.
func (s *store) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	if err := s.await(ctx); err != nil {
		return answer(err)
	}
	if !s.outlasts(clock.System.Now(), r.TTL) {
		return answer(errStale)
	}
	ttl := strconv.FormatInt(s.leases.Lengthen(r.ID, r.TTL).Milliseconds(), 10)
	_, err := do(ctx, s.session, s.holds, r.ID, func() (*zk.Stat, error) {
		stat, err := s.conn.Set(placeOf(s.root, r.Key).lease(r.ID), []byte(ttl), int32(s.leases.Version(r.ID)))
		if err == nil {
			s.leases.Written(r.ID, int64(stat.Version))
		}
		return stat, err
	})
	switch {
	case err == nil:
		return vote.Answer{Verdict: vote.Granted, Counter: r.Token}
	case errors.Is(err, zk.ErrBadVersion): // an answer was lost, or somebody has extended it by its id
		return s.move(ctx, r, true)
	case errors.Is(err, zk.ErrNoNode):
		return vote.Answer{Verdict: vote.NotOurs}
	}
	return answer(err)
}

// Release implements quorum.Voter. It follows an Acquire that is under way, and goes on in the
// background until it is known that the lock is not held under this id.
func (s *store) Release(ctx context.Context, r vote.Release) vote.Answer {
	select {
	case a := <-s.remove(r.Key, r.ID):
		a.Woken = r.Waiting && a.Verdict == vote.Granted
		return a
	case <-ctx.Done():
		return vote.Answer{Verdict: vote.Unknown, Err: errAbandoned}
	}
}

// remove makes the lease of id end, and returns a channel that gets the answer.
func (s *store) remove(key, id string) <-chan vote.Answer {
	return ensemble.Removal{
		Run: s.run, Rest: s.rest, Closed: errNotConnected,
		Once:  func(doubtful bool) vote.Answer { return s.removeOnce(s.life, key, id, doubtful) },
		Ended: func() { s.leases.Forget(id) },
	}.Start()
}

// removeOnce waits for a connection, and then for the answer. doubtful: the request was sent
// before.
func (s *store) removeOnce(ctx context.Context, key, id string, doubtful bool) vote.Answer {
	if err := s.await(ctx); err != nil {
		return answer(err)
	}
	p := placeOf(s.root, key)
	_, err := do(ctx, s.session, s.releases, id, func() ([]zk.MultiResponse, error) {
		return s.conn.Multi(&zk.DeleteRequest{Path: p.lease(id), Version: -1}, &zk.DeleteRequest{Path: p.held(), Version: -1})
	})
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode) && doubtful:
		return vote.Answer{Verdict: vote.Granted}
	case errors.Is(err, zk.ErrNoNode):
		return vote.Answer{Verdict: vote.NotOurs}
	}
	return answer(err)
}
