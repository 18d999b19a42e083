package etcd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// Detach implements hook.Store.
func (s *store) Detach(key, id string) {
	ensemble.Expiry{Run: s.run, Pause: s.pause, End: s.expire}.Start(s.leases, key, id)
}

// Prolong implements hook.Store.
func (s *store) Prolong(ctx context.Context, r vote.Extend) vote.Answer {
	a := s.move(ctx, r)
	if a.Verdict == vote.NotOurs {
		s.leases.Forget(r.ID)
	} else {
		s.Detach(r.Key, r.ID)
	}
	return a
}

// Drop implements hook.Store.
func (s *store) Drop(ctx context.Context, r vote.Release) vote.Answer {
	a := s.removeOnce(ctx, placeOf(s.prefix, r.Key), r.ID, false)
	if a.Verdict == vote.Granted {
		s.leases.Forget(r.ID)
	}
	return a
}

// move extends a lock, under whichever etcd lease it is, and puts it under this client's.
func (s *store) move(ctx context.Context, r vote.Extend) vote.Answer {
	p := placeOf(s.prefix, r.Key)
	for range maxConflicts {
		if err := s.await(ctx); err != nil {
			return answer(err)
		}
		c, err := s.contents(ctx, p)
		if err != nil {
			return notAsked(err)
		}
		if c.holder != r.ID {
			return vote.Answer{Verdict: vote.NotOurs}
		}
		// rule: extend-never-shortens
		ttl := max(r.TTL, c.ttl)
		native, a := s.keeps(ttl)
		if native == 0 {
			return a
		}
		text := strconv.FormatInt(s.leases.Lengthen(r.ID, ttl).Milliseconds(), 10)
		result, err := s.client.Txn(ctx).If(p.isHolders(r.ID), at(p.lease(), c.lease)).
			Then(clientv3.OpPut(p.held(), r.ID, clientv3.WithLease(native)), clientv3.OpPut(p.lease(), text, clientv3.WithLease(native))).
			Commit()
		switch {
		case err != nil:
			s.lost(native, err)
			return answer(err)
		case result.Succeeded:
			s.leases.Written(r.ID, result.Header.Revision)
			return vote.Answer{Verdict: vote.Granted, Counter: r.Token}
		}
	}
	return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}
}

// keeps returns the etcd lease if it is known to last for a ttl. If not, the answer says why.
func (s *store) keeps(ttl time.Duration) (clientv3.LeaseID, vote.Answer) {
	native, ok := s.outlasting(clock.System.Now(), ttl)
	if ok {
		return native, vote.Answer{}
	}
	if s.asked < 2*ttl {
		return 0, vote.Answer{Verdict: vote.Refused, Err: fmt.Errorf("%w: the lock is kept for %v, and this client's etcd lease, which must last for twice as long, lasts for %v: use a MaxTTL of %v", redlatch.ErrInvalid, ttl, s.asked, ttl)}
	}
	return 0, answer(errStale)
}

// notAsked returns the answer after an error that came before anything was asked for.
func notAsked(err error) vote.Answer { return ensemble.NotAsked(answer(err)) }

// expire deletes a lock that is under this client's etcd lease, at the revision at which nobody has
// extended it. It also reports true if the lock is not there, not under this etcd lease, or refused.
func (s *store) expire(key, id string, over func() bool) bool {
	if s.await(s.life) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.life, stepTime)
	defer cancel()
	p, native := placeOf(s.prefix, key), s.native()
	c, err := s.contents(ctx, p)
	switch {
	case err != nil:
		return s.refused(native, err)
	case c.holder != id || c.native != native:
		return true
	case !over():
		return false
	}
	result, err := s.client.Txn(ctx).If(p.isHolders(id), at(p.lease(), c.lease), p.isUnder(native)).
		Then(clientv3.OpDelete(p.held()), clientv3.OpDelete(p.lease())).Commit()
	return err == nil && result.Succeeded || s.refused(native, err)
}
