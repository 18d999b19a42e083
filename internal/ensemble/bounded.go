package ensemble

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/vote"
)

// MaxInFlight bounds the attempts under way of one client and, apart from them, its releases. An ensemble
// answers more requests at once later, not faster: the extension of a held lock would come too late.
const MaxInFlight = 128

// patience is how long an attempt waits for a slot: what is left of its step is for the servers.
const patience = StepTime / 2

// ErrBusy says that nothing was sent, as no slot was free.
var ErrBusy = errors.New("too many requests are under way")

// Slots are for requests under way: it has one element for each of them.
type Slots chan struct{}

// Take waits for a slot. The error is ErrBusy.
func (s Slots) Take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ErrBusy
	}
}

// Free gives a slot back.
func (s Slots) Free() { <-s }

// bounded is a store that bounds the attempts under way, and what else is asked for by those who hold
// nothing. Extensions and releases do not wait for these.
type bounded struct {
	hook.Store
	slots Slots
}

// Bounded returns s with its attempts bounded.
func Bounded(s hook.Store) hook.Store { return bounded{s, make(Slots, MaxInFlight)} }

// take waits for a slot, for patience at most.
func (b bounded) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.slots.Take(ctx)
}

var busy = vote.Answer{Verdict: vote.NotSent, Err: ErrBusy}

func (b bounded) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	if b.take(ctx) != nil {
		return busy
	}
	defer b.slots.Free()
	return b.Store.Acquire(ctx, r)
}

func (b bounded) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	if b.take(ctx) != nil {
		return vote.Position{Answer: busy, Ticket: r.Ticket}
	}
	defer b.slots.Free()
	return b.Store.Enqueue(ctx, r)
}

func (b bounded) HasWaiters(ctx context.Context, key string) (bool, error) {
	if err := b.take(ctx); err != nil {
		return false, err
	}
	defer b.slots.Free()
	return b.Store.HasWaiters(ctx, key)
}

func (b bounded) Watch(ctx, until context.Context, key string) (a vote.Answer, watched bool) {
	if b.take(ctx) != nil {
		return busy, false
	}
	defer b.slots.Free()
	return b.Store.Watch(ctx, until, key)
}

func (b bounded) Look(ctx context.Context, key string) (vote.Answer, []string) {
	if b.take(ctx) != nil {
		return busy, nil
	}
	defer b.slots.Free()
	return b.Store.Look(ctx, key)
}

func (b bounded) Keys(ctx context.Context) ([]string, vote.Answer) {
	if b.take(ctx) != nil {
		return nil, busy
	}
	defer b.slots.Free()
	return b.Store.Keys(ctx)
}
