package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

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
	a := s.move(ctx, r, false)
	if a.Verdict == vote.NotOurs {
		s.leases.Forget(r.ID)
	} else {
		s.Detach(r.Key, r.ID)
	}
	return a
}

// Drop implements hook.Store.
func (s *store) Drop(ctx context.Context, r vote.Release) vote.Answer {
	a := s.removeOnce(ctx, r.Key, r.ID, false)
	if a.Verdict == vote.Granted {
		s.leases.Forget(r.ID)
	}
	return a
}

// move extends a lease, in whatever session it is, and makes it anew in this one. If its holder
// extends it, its version is then grantVersion; if somebody extends it by its id alone, the version
// is 0, so that the holder's next extension finds out.
func (s *store) move(ctx context.Context, r vote.Extend, holder bool) vote.Answer {
	for range maxConflicts {
		if err := s.await(ctx); err != nil {
			return answer(err)
		}
		// What this server knows may be older than what another has told somebody.
		if err := s.sync(ctx, s.holds, r.ID); err != nil {
			return notAsked(err)
		}
		a, again := s.moveOnce(ctx, r, holder)
		if !again {
			return a
		}
	}
	return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}
}

// moveOnce makes one try. again: the lease has changed meanwhile.
func (s *store) moveOnce(ctx context.Context, r vote.Extend, holder bool) (a vote.Answer, again bool) {
	p := placeOf(s.root, r.Key)
	c, err := s.contents(ctx, s.holds, p)
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && c.holder != r.ID:
		return vote.Answer{Verdict: vote.NotOurs}, false
	case err != nil:
		return notAsked(err), false
	}
	data, stat, err := s.get(ctx, s.holds, p.lease(r.ID), false)
	if err != nil {
		return notAsked(err), errors.Is(err, zk.ErrNoNode)
	}
	before, err := p.ttl(r.ID, data)
	if err != nil {
		return answer(err), false
	}
	// rule: extend-never-shortens
	ttl := max(r.TTL, before)
	if a, ok := s.keeps(ttl); !ok {
		return a, false
	}
	text := []byte(strconv.FormatInt(s.leases.Lengthen(r.ID, ttl).Milliseconds(), 10))
	ops := []any{
		&zk.SetDataRequest{Path: string(p), Version: c.moves},
		&zk.DeleteRequest{Path: p.lease(r.ID), Version: stat.Version}, &zk.DeleteRequest{Path: p.held(), Version: -1},
		&zk.CreateRequest{Path: p.held(), Acl: s.acl, Flags: zk.FlagEphemeral},
		&zk.CreateRequest{Path: p.lease(r.ID), Data: text, Acl: s.acl, Flags: zk.FlagEphemeral},
	}
	if holder {
		ops = append(ops, &zk.SetDataRequest{Path: p.lease(r.ID), Data: text, Version: 0})
	}
	_, err = do(ctx, s.session, s.holds, r.ID, func() ([]zk.MultiResponse, error) {
		results, err := s.conn.Multi(ops...)
		if err == nil && holder {
			s.leases.Written(r.ID, grantVersion)
		}
		return results, err
	})
	switch {
	case err == nil:
		return vote.Answer{Verdict: vote.Granted, Counter: r.Token}, false
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		return vote.Answer{}, true
	}
	return answer(err), false
}

// keeps reports whether the session is known to last for a ttl. If not, the answer says why.
func (s *store) keeps(ttl time.Duration) (vote.Answer, bool) {
	if s.outlasts(clock.System.Now(), ttl) {
		return vote.Answer{}, true
	}
	s.mu.Lock()
	lasts := s.touches.lasts
	s.mu.Unlock()
	if lasts < 2*ttl {
		return vote.Answer{Verdict: vote.Refused, Err: fmt.Errorf("%w: the lock is kept for %v, and this client's session, which must last for twice as long, lasts for %v: use a MaxTTL of %v", redlatch.ErrInvalid, ttl, lasts, ttl)}, false
	}
	return answer(errStale), false
}

// notAsked returns the answer after an error that came before anything was asked for.
func notAsked(err error) vote.Answer { return ensemble.NotAsked(answer(err)) }

// expire deletes a lease of this session, at the version at which nobody has extended it. It also
// reports true if the lease is not there, not in this session, or refused.
func (s *store) expire(key, id string, over func() bool) bool {
	if s.await(s.life) != nil {
		return false
	}
	p := placeOf(s.root, key)
	c, err := s.contents(s.life, s.releases, p)
	if err != nil || c.holder != id {
		return err == nil || errors.Is(err, zk.ErrNoNode) || refused(err)
	}
	_, stat, err := s.get(s.life, s.releases, p.lease(id), false)
	if err != nil || stat.EphemeralOwner != s.conn.SessionID() {
		return err == nil || errors.Is(err, zk.ErrNoNode) || refused(err)
	}
	if !over() {
		return false
	}
	ops := append(p.unmoved(c), &zk.DeleteRequest{Path: p.lease(id), Version: stat.Version}, &zk.DeleteRequest{Path: p.held(), Version: -1})
	_, err = do(s.life, s.session, s.releases, id, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
	return err == nil || refused(err)
}

func refused(err error) bool { return answer(err).Verdict == vote.Refused }
