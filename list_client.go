package redlatch

import (
	"context"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/vote"
)

// List is the function [List] for the client's nodes. It is the only way to list the locks in
// ZooKeeper and etcd. There it asks for each lock; Left is the TTL of the holder, from its last
// extension on, which others do not know the time of; and nothing is Foreign.
func (c *Client) List(ctx context.Context, pattern string) ([]Listed, []NodeAnswer, error) {
	s, is := c.store()
	if !is {
		return List(ctx, c.config, pattern)
	}
	if _, err := matches(pattern, ""); err != nil {
		return nil, nil, invalid("the pattern %q: %w: close its brackets", pattern, err)
	}
	before, after, _ := strings.Cut(c.config.KeyTemplate, nameMark)
	return c.look(ctx, s, func(ctx context.Context) (names []string, a vote.Answer) {
		keys, a := s.Keys(ctx)
		for _, key := range keys {
			name, ok := strings.CutPrefix(key, before)
			name, ok2 := strings.CutSuffix(name, after)
			if match, _ := matches(pattern, name); ok && ok2 && match {
				names = append(names, name)
			}
		}
		return names, a
	})
}

// Waiters is the function [Waiters] for the client's nodes.
func (c *Client) Waiters(ctx context.Context, name string) ([]Waiter, error) {
	s, is := c.store()
	if !is {
		return Waiters(ctx, c.config, name)
	}
	listed, _, err := c.look(ctx, s, func(context.Context) ([]string, vote.Answer) {
		return []string{name}, vote.Answer{Verdict: vote.Granted}
	})
	for _, lock := range listed {
		return lock.Waiting, err
	}
	return nil, err
}

// lookups is how many locks a store is asked for at the same time.
const lookups = 16

// look has a store say what it has of the locks that are chosen.
func (c *Client) look(ctx context.Context, s store, choose func(context.Context) ([]string, vote.Answer)) ([]Listed, []NodeAnswer, error) {
	if err := checkContext(ctx); err != nil {
		return nil, nil, err
	}
	if err := c.enter(); err != nil {
		return nil, nil, err
	}
	defer c.calls.Done()
	if err := c.usable(); err != nil {
		return nil, nil, err
	}
	step := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, c.config.NodeTimeout) }
	chosen, cancel := step()
	names, answer := choose(chosen)
	cancel()
	locks := make(map[listed]found)
	var mu sync.Mutex // guards locks and answer
	var looks sync.WaitGroup
	room := make(chan struct{}, lookups)
	for _, name := range names {
		key, err := c.config.key(name)
		if err != nil {
			continue // of another template
		}
		room <- struct{}{}
		mu.Lock()
		failed := answer.Verdict != vote.Granted
		mu.Unlock()
		if failed {
			break
		}
		looks.Go(func() {
			defer func() { <-room }()
			ctx, cancel := step()
			defer cancel()
			holder, waiting := s.Look(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case holder.Verdict != vote.Held && holder.Verdict != vote.NotOurs:
				answer = holder
			case holder.Holder != "" || len(waiting) > 0:
				locks[listed{name: name}] = found{holder: holder.Holder, left: holder.Left, queue: waiting}
			}
		})
	}
	looks.Wait()
	all, answers := together([]map[listed]found{locks}), c.answers([]vote.Answer{answer})
	if answer.Verdict != vote.Granted {
		return all, answers, newQuorumError("list", "", answers)
	}
	return all, answers, nil
}

// Permits is the function [Permits] for the client's nodes. ZooKeeper and etcd have none: the error
// wraps ErrInvalid.
func (c *Client) Permits(ctx context.Context, name string) ([]Listed, []NodeAnswer, error) {
	if _, is := c.store(); is {
		return nil, nil, errNoPermits
	}
	return Permits(ctx, c.config, name)
}
