package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/vote"
)

// Look implements hook.Store.
func (s *store) Look(ctx context.Context, key string) (vote.Answer, []string) {
	for range maxConflicts {
		if err := s.await(ctx); err != nil {
			return notAsked(err), nil
		}
		p := placeOf(s.root, key)
		if err := s.sync(ctx, s.asks, ""); err != nil {
			return notAsked(err), nil
		}
		c, err := s.contents(ctx, s.asks, p)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return notAsked(err), nil
		}
		waiting := make([]string, len(c.waiters))
		for i, w := range c.waiters {
			waiting[i] = w.name
		}
		if c.holder == "" {
			return vote.Answer{Verdict: vote.NotOurs}, waiting
		}
		data, _, err := s.get(ctx, s.asks, p.lease(c.holder), false)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		var ttl time.Duration
		if err == nil {
			ttl, err = p.ttl(c.holder, data)
		}
		if err != nil {
			return notAsked(err), nil
		}
		return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: ttl}, waiting
	}
	return vote.Answer{Verdict: vote.Unavailable, Err: errConflict}, nil
}

// Keys implements hook.Store.
func (s *store) Keys(ctx context.Context) ([]string, vote.Answer) {
	if err := s.await(ctx); err != nil {
		return nil, answer(err)
	}
	children, err := do(ctx, s.session, s.asks, "", func() ([]string, error) {
		if _, err := s.conn.Sync(s.root); err != nil {
			return nil, err
		}
		children, _, err := s.conn.Children(s.root)
		return children, err
	})
	if err != nil {
		return nil, notAsked(err)
	}
	var keys []string
	for _, child := range children {
		if key, ok := keyOf(s.root, s.root+"/"+child); ok {
			keys = append(keys, key)
		}
	}
	return keys, vote.Answer{Verdict: vote.Granted}
}
