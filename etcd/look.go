package etcd

import (
	"context"
	"net/url"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch/internal/vote"
)

// Look implements hook.Store.
func (s *store) Look(ctx context.Context, key string) (vote.Answer, []string) {
	if err := s.await(ctx); err != nil {
		return answer(err), nil
	}
	p := placeOf(s.prefix, key)
	c, err := s.contents(ctx, p)
	if err != nil {
		return notAsked(err), nil
	}
	waiting := make([]string, len(c.waiters))
	for i, w := range c.waiters {
		waiting[i] = w.name
	}
	if c.holder == "" {
		return vote.Answer{Verdict: vote.NotOurs}, waiting
	}
	return vote.Answer{Verdict: vote.Held, Holder: c.holder, Left: c.ttl}, waiting
}

// Keys implements hook.Store.
func (s *store) Keys(ctx context.Context) ([]string, vote.Answer) {
	if err := s.await(ctx); err != nil {
		return nil, answer(err)
	}
	locks := s.prefix + lockPrefix
	r, err := s.client.Get(ctx, locks, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, notAsked(err)
	}
	var keys []string
	last := ""
	for _, kv := range r.Kvs { // in order, those of one lock together
		name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), locks), "/")
		if name == last {
			continue
		}
		last = name
		if key, err := url.QueryUnescape(name); err == nil {
			keys = append(keys, key)
		}
	}
	return keys, vote.Answer{Verdict: vote.Granted}
}
