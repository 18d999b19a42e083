package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// Extend implements quorum.Voter. If an earlier extension was not answered and arrives later, it is
// not executed: it would shorten this one.
func (s *store) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	p := placeOf(s.prefix, r.Key)
	for range maxConflicts {
		if err := s.await(ctx); err != nil {
			return answer(err)
		}
		native, ok := s.outlasting(clock.System.Now(), r.TTL)
		if !ok {
			return answer(errStale)
		}
		ttl := s.leases.Lengthen(r.ID, r.TTL)
		result, err := s.client.Txn(ctx).
			If(p.isHolders(r.ID), at(p.lease(), s.leases.Version(r.ID)), p.isUnder(native)).
			Then(clientv3.OpPut(p.lease(), strconv.FormatInt(ttl.Milliseconds(), 10), clientv3.WithLease(native))).
			Else(p.reads()...).Commit()
		if err != nil {
			s.lost(native, err)
			return answer(err)
		}
		if result.Succeeded {
			s.leases.Written(r.ID, result.Header.Revision)
			return vote.Answer{Verdict: vote.Granted, Counter: r.Token}
		}
		c, err := p.parse(result)
		if err != nil {
			return answer(err)
		}
		if c.holder != r.ID {
			return vote.Answer{Verdict: vote.NotOurs}
		}
		if c.native != native { // somebody has extended it by its id
			return s.move(ctx, r)
		}
		s.leases.Written(r.ID, c.lease)
	}
	return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}
}

// Release implements quorum.Voter. It goes on in the background until it is known that the lock is
// not held under this id, and never will be.
func (s *store) Release(ctx context.Context, r vote.Release) vote.Answer {
	select {
	case a := <-s.remove(r.Key, r.ID):
		a.Woken = r.Waiting && a.Verdict == vote.Granted
		return a
	case <-ctx.Done():
		return answer(ctx.Err())
	}
}

// refused reports whether err says that the servers refuse to delete what this client has under an etcd lease. Then that is not
// renewed any more, so that it ends.
func (s *store) refused(native clientv3.LeaseID, err error) bool {
	refused := answer(err).Verdict == vote.Refused
	if refused {
		s.replace(native)
	}
	return refused
}

// remove makes the lease of id end, and returns a channel that gets the answer.
func (s *store) remove(key, id string) <-chan vote.Answer {
	return ensemble.Removal{
		Run: s.run, Rest: s.rest, Closed: errClosed,
		Once: func(doubtful bool) vote.Answer {
			native := s.native()
			a := s.removeOnce(s.life, placeOf(s.prefix, key), id, doubtful)
			s.refused(native, a.Err)
			if errors.Is(a.Err, rpctypes.ErrNoSpace) { // until an operator has done something
				s.pause(time.Second)
			}
			return a
		},
		Ended: func() { s.leases.Forget(id) },
	}.Start()
}

// removeOnce waits for the answer. doubtful: the request was sent before.
func (s *store) removeOnce(ctx context.Context, p place, id string, doubtful bool) vote.Answer {
	if err := s.await(ctx); err != nil {
		return answer(err)
	}
	if err := s.releases.Take(ctx); err != nil {
		return answer(err)
	}
	defer s.releases.Free()
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	native, err := s.leased()
	if err != nil {
		return answer(err)
	}
	deletion := func() clientv3.Txn {
		return s.client.Txn(ctx).If(p.isHolders(id)).Then(clientv3.OpDelete(p.held()), clientv3.OpDelete(p.lease()))
	}
	// The gate makes an acquisition under this id fail that is still on its way.
	result, err := deletion().Else(p.gate(native)).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) { // which servers say because of the gate
		if alone, failed := deletion().Commit(); failed == nil && alone.Succeeded {
			result, err = alone, nil
		}
	}
	switch {
	case err != nil:
		s.lost(native, err)
		return answer(err)
	case result.Succeeded || doubtful:
		return vote.Answer{Verdict: vote.Granted}
	}
	return vote.Answer{Verdict: vote.NotOurs}
}
