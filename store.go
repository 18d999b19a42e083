package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/vote"
)

// store is a member that is not a Redis. Another module provides it.
type store struct {
	hook.Store
	reach *node.Reach // nil where nobody observes
}

var (
	errNoTake    = invalid("these servers do not lock under an id that the caller chooses: use Lock and Lock.Detach, which returns an id that extends and releases the lock")
	errNoSeveral = invalid("these servers lock one name at a time: lock each by itself, always in the same order")
	errNoShared  = invalid("these servers have no readers: use Lock, or leave WithShared out")
	errNoPermits = invalid("these servers have no permits: use a lock with a name of its own for each permit")
	errNoVouch   = invalid("these servers forget no lock when one of them restarts: there is nothing to admit or to reset")
)

// unfit returns why no lock can be had with these settings, or nil.
func (s store) unfit() error {
	if err := s.Err(); err != nil {
		return invalid("%w", err)
	}
	return nil
}

func (s store) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	return s.noted(s.Store.Acquire(ctx, r))
}

func (s store) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	return s.noted(s.Store.Extend(ctx, r))
}

// noted notes what a vote shows of whether the servers can be reached.
func (s store) noted(a vote.Answer) vote.Answer {
	switch {
	case s.reach == nil:
	case !s.Unreachable():
		s.reach.Note(nil)
	case a.Err != nil: // else it was lost after the answer, and the next vote shows it
		s.reach.Note(a.Err)
	}
	return a
}

// These are the steps of package oneshot.

func (store) Take(context.Context, node.Way, vote.Acquire) vote.Answer {
	return vote.Answer{Verdict: vote.Refused, Err: errNoTake}
}

func (store) Choose(context.Context, vote.Acquire) vote.Answer {
	return vote.Answer{Verdict: vote.Refused, Err: errNoPermits}
}

func (s store) Prolong(ctx context.Context, _ node.Way, r vote.Extend) vote.Answer {
	return s.Store.Prolong(ctx, r)
}

func (s store) Drop(ctx context.Context, _ node.Way, r vote.Release) vote.Answer {
	return s.Store.Drop(ctx, r)
}

func (s store) Query(ctx context.Context, key string) vote.Answer {
	holder, _ := s.Look(ctx, key)
	return holder
}

// Read is Watch without a notice of changes: its answer is that of all servers.
func (s store) Read(ctx context.Context, key string) vote.Answer {
	a, _ := s.Watch(ctx, over, key)
	return a
}

// ReadAll refuses, as a store has no permits.
func (store) ReadAll(context.Context, []string, bool) ([]vote.Answer, vote.Answer) {
	return nil, vote.Answer{Verdict: vote.Refused, Err: errNoPermits}
}

// over is a ctx that is done.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (store) Vouch(context.Context) error { return errNoVouch }
func (store) Reset(context.Context) error { return errNoVouch }
func (store) InQuarantine() bool          { return false }
