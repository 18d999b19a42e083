package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// gated is a node that grants everything, and answers one batch of extensions for each value that gate gets.
type gated struct {
	gate chan struct{}

	mu sync.Mutex // guards what follows
	// batches has the number of leases of each batch, and open is how many are unanswered.
	batches []int
	open    int
}

func (g *gated) Acquire(context.Context, vote.Acquire) vote.Answer {
	return vote.Answer{Verdict: vote.Granted, Counter: 1}
}
func (g *gated) Extend(context.Context, vote.Extend) vote.Answer   { return agrees }
func (g *gated) Confirm(context.Context, vote.Confirm) vote.Answer { return agrees }
func (g *gated) Repair(context.Context, vote.Extend) vote.Answer   { return agrees }
func (g *gated) Release(context.Context, vote.Release) vote.Answer { return agrees }

var agrees = vote.Answer{Verdict: vote.Granted}

func (g *gated) ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer {
	g.count(1, len(batch))
	defer g.count(-1)
	a := agrees
	select {
	case <-g.gate:
	case <-ctx.Done():
		a.Verdict = vote.Unknown
	}
	return slices.Repeat([]vote.Answer{a}, len(batch))
}

func (g *gated) count(d int, batches ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.batches = g.open+d, append(g.batches, batches...)
}

// has checks which batches there were and how many are unanswered.
func (g *gated) has(t *testing.T, open int, batches ...int) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != open || !slices.Equal(g.batches, batches) {
		t.Fatalf("%d batches are unanswered, want %d; all: %v, want %v", g.open, open, g.batches, batches)
	}
}

// renewedTTL is what most leases are renewed by.
const renewedTTL = 12 * time.Second

// renewals are those of a client with one node.
type renewals struct {
	*Renewals
	*gated
	life context.CancelFunc
	t    *testing.T
	n    int

	mu   sync.Mutex // guards what follows
	ends map[Extension]int
}

func newRenewals(t *testing.T) *renewals {
	life, end := context.WithCancel(t.Context())
	g := &gated{gate: make(chan struct{})}
	e := New([]Voter{g}, newBubbleClock(), stepTime)
	t.Cleanup(e.Close)
	return &renewals{Renewals: NewRenewals(life, e, false).(*Renewals), gated: g, life: end, t: t, ends: make(map[Extension]int)}
}

// due makes n more leases, which are due at once and renewed by ttl.
func (r *renewals) due(n int, ttl time.Duration) {
	r.t.Helper()
	leases := make([]*Lease, n)
	for i := range leases {
		r.n++
		leases[i] = acquired(r.t, r.engine, fmt.Sprint("lease-", r.n))
	}
	for _, l := range leases {
		r.renew(l, ttl)
	}
}

func (r *renewals) renew(l *Lease, ttl time.Duration) {
	r.Renew(l, ttl, func(end Extension, _ []vote.Answer) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ends[end]++
	})
}

// ended checks how many have ended in which way.
func (r *renewals) ended(end Extension, want int) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends[end] != want {
		r.t.Errorf("ended: %v, want %d of %d", r.ends, want, end)
	}
}

// However many leases are due, a bounded number of commands is under way, each for a bounded number of leases; the rest
// follow as these are answered.
func TestRenewalsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewals(t)
		full := slices.Repeat([]int{maxRenewals}, maxRenewalRounds)
		r.due(maxRenewals*(maxRenewalRounds+1)+1, renewedTTL)
		time.Sleep(renewalJoin)
		r.has(t, maxRenewalRounds, full...)
		r.due(1, renewedTTL)
		time.Sleep(2 * renewalJoin)
		r.has(t, maxRenewalRounds, full...)
		all := append(full, maxRenewals)
		r.gate <- struct{}{}
		r.has(t, maxRenewalRounds, all...)
		all = append(all, 2)
		r.gate <- struct{}{}
		r.has(t, maxRenewalRounds, all...)
		r.gate <- struct{}{}
		r.has(t, maxRenewalRounds-1, all...)
		close(r.gate)
		r.ended(Extended, maxRenewals*(maxRenewalRounds+1)+2)
		// The rounds that are over count no more.
		for range 2 * maxRenewalRounds {
			r.due(1, renewedTTL)
			time.Sleep(renewalJoin)
			all = append(all, 1)
			r.has(t, 0, all...)
		}
		r.ended(Extended, r.n)
	})
}

// The first lease that is due waits a little for others. It does not wait for a round before, which may be late.
func TestRenewalsJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewals(t)
		r.due(1, renewedTTL)
		time.Sleep(renewalJoin / 2)
		r.due(1, renewedTTL)
		r.has(t, 0)
		time.Sleep(renewalJoin / 2)
		r.has(t, 1, 2)
		time.Sleep(renewalJoin / 4)
		r.due(1, renewedTTL)
		time.Sleep(renewalJoin * 3 / 4)
		r.due(1, renewedTTL)
		r.has(t, 1, 2)
		time.Sleep(renewalJoin / 4)
		r.has(t, 2, 2, 2)
		r.ended(Extended, 0)
		r.gate <- struct{}{}
		r.ended(Extended, 2)
		r.gate <- struct{}{}
		r.ended(Extended, 4)
	})
}

// A round that nobody answers ends after a twelfth of the shortest TTL in it, or when the client is closed.
func TestRenewalsUnanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewals(t)
		r.due(1, 2*renewedTTL)
		r.due(1, renewedTTL)
		r.due(1, 3*renewedTTL)
		time.Sleep(renewalJoin + renewedTTL/12 - 1)
		r.has(t, 1, 3)
		time.Sleep(time.Nanosecond)
		r.has(t, 0, 3)
		r.ended(Missed, 3)
		r.due(2, renewedTTL)
		time.Sleep(renewalJoin)
		r.has(t, 1, 3, 2)
		r.life()
		r.has(t, 0, 3, 2)
		r.ended(Missed, 5)
	})
}

// A lease whose validity is over when the round begins, or that has been held for too long, is not extended, and the
// next extension does not wait for this one.
func TestRenewalsTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewals(t)
		over := acquired(t, r.engine, "over")
		time.Sleep(10 * time.Second)
		long := acquired(t, r.engine, "long")
		long.Limit(time.Second)
		time.Sleep(time.Second)
		r.renew(over, renewedTTL)
		r.renew(long, renewedTTL)
		time.Sleep(renewalJoin)
		r.has(t, 0)
		r.ended(Lapsed, 1)
		r.ended(Overlong, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if end, _ := long.Extend(ctx, renewedTTL); end != Overlong {
			t.Errorf("the next ended %d", end)
		}
	})
}

// A client is overloaded when four fifths of the renewals that may be under way are, on average.
func TestRenewalsOverloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewals(t)
		const took = 80 * time.Millisecond
		slow := func() {
			r.due(1, renewedTTL)
			time.Sleep(renewalJoin + took)
			r.gate <- struct{}{}
			synctest.Wait()
		}
		if slow(); r.took.Load() != int64(took/8) {
			t.Errorf("after one round: %v", time.Duration(r.took.Load()))
		}
		for range 100 {
			slow()
		}
		if got := time.Duration(r.took.Load()); got < took*99/100 || got > took {
			t.Errorf("a round takes %v, want %v", got, took)
		}
		const each = 40 * time.Millisecond // each lease has two under way
		most := maxRenewals * maxRenewalRounds * 4 / 5 / 2
		for range most {
			r.Add(each)
		}
		if r.Overloaded() {
			t.Errorf("%d leases are too many", most)
		}
		for range most/99 + 1 {
			r.Add(each)
		}
		if !r.Overloaded() {
			t.Error("one percent more are not too many")
		}
		for range most/99 + 1 {
			r.Remove(each)
		}
		if r.Overloaded() {
			t.Error("those that are gone count")
		}
	})
}

// Leases are renewed one by one where a node cannot do so for several, and where replicas are waited for.
func TestNoRenewalsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewals(t)
		if together := NewRenewals(t.Context(), r.engine, true); together != nil {
			t.Error("replicas are not waited for")
		}
		e := New([]Voter{r.gated, struct{ Voter }{r.gated}}, newBubbleClock(), stepTime)
		t.Cleanup(e.Close)
		if together := NewRenewals(t.Context(), e, false); together != nil {
			t.Error("a node is asked for what it cannot do")
		}
	})
}
