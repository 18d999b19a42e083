package ensemble

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/vote"
)

// hung is a store that answers who holds nothing when its ctx ends, and others at once.
type hung struct {
	hook.Store
	asked atomic.Int64
}

func (h *hung) ask(ctx context.Context) vote.Answer {
	h.asked.Add(1)
	<-ctx.Done()
	return vote.Answer{Verdict: vote.Unknown}
}

func (h *hung) Acquire(ctx context.Context, _ vote.Acquire) vote.Answer { return h.ask(ctx) }
func (h *hung) Look(ctx context.Context, _ string) (vote.Answer, []string) {
	return h.ask(ctx), nil
}
func (h *hung) Keys(ctx context.Context) ([]string, vote.Answer) { return nil, h.ask(ctx) }
func (h *hung) Watch(ctx, _ context.Context, _ string) (vote.Answer, bool) {
	return h.ask(ctx), true
}
func (h *hung) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	return vote.Position{Answer: h.ask(ctx), Ticket: r.Ticket}
}
func (h *hung) HasWaiters(ctx context.Context, _ string) (bool, error) {
	h.ask(ctx)
	return false, nil
}
func (h *hung) Extend(context.Context, vote.Extend) vote.Answer {
	return vote.Answer{Verdict: vote.Granted}
}
func (h *hung) Release(context.Context, vote.Release) vote.Answer {
	return vote.Answer{Verdict: vote.Granted}
}

// Attempts beyond the bound wait for a slot for half a step and are then not sent, and neither is what else those ask
// for who hold nothing. Who holds a lock does not wait. A slot that becomes free goes to who waits.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := new(hung)
		s := Bounded(h)
		full, end := context.WithCancel(t.Context())
		var attempts sync.WaitGroup
		for range MaxInFlight {
			attempts.Go(func() { s.Acquire(full, vote.Acquire{}) })
		}
		synctest.Wait()
		for name, ask := range map[string]func(ctx context.Context) vote.Answer{
			"acquire": func(ctx context.Context) vote.Answer { return s.Acquire(ctx, vote.Acquire{}) },
			"enqueue": func(ctx context.Context) vote.Answer {
				p := s.Enqueue(ctx, vote.Enqueue{Ticket: vote.Ticket{Waiter: "w"}})
				if p.Ticket.Waiter != "w" {
					t.Errorf("the place of %q", p.Ticket.Waiter)
				}
				return p.Answer
			},
			"look":  func(ctx context.Context) vote.Answer { a, _ := s.Look(ctx, "key"); return a },
			"keys":  func(ctx context.Context) vote.Answer { _, a := s.Keys(ctx); return a },
			"watch": func(ctx context.Context) vote.Answer { a, _ := s.Watch(ctx, ctx, "key"); return a },
			"waiters": func(ctx context.Context) vote.Answer {
				_, err := s.HasWaiters(ctx, "key")
				return vote.Answer{Verdict: vote.NotSent, Err: err}
			},
		} {
			start := time.Now()
			a := ask(t.Context())
			if a.Verdict != vote.NotSent || !errors.Is(a.Err, ErrBusy) || time.Since(start) != StepTime/2 {
				t.Errorf("%s: %+v after %v", name, a, time.Since(start))
			}
			ctx, cancel := context.WithTimeout(t.Context(), StepTime/10)
			if a := ask(ctx); a.Verdict != vote.NotSent || time.Since(start) != StepTime/2+StepTime/10 {
				t.Errorf("%s, until its ctx: %+v after %v", name, a, time.Since(start))
			}
			cancel()
		}
		if s.Extend(t.Context(), vote.Extend{}).Verdict != vote.Granted || s.Release(t.Context(), vote.Release{}).Verdict != vote.Granted {
			t.Error("a holder waits")
		}
		if n := h.asked.Load(); n != MaxInFlight {
			t.Errorf("%d are under way", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		attempts.Go(func() { s.Acquire(ctx, vote.Acquire{}) })
		synctest.Wait()
		end()
		synctest.Wait()
		if n := h.asked.Load(); n != MaxInFlight+1 {
			t.Errorf("%d were asked for when slots were free again", n)
		}
		cancel()
		attempts.Wait()
	})
}
