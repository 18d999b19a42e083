package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// inBlock makes an attempt that must hold, for three tokens.
func inBlock(t *testing.T, e *Engine, id string) *Lease {
	t.Helper()
	request := requestOf(id)
	request.More = 2
	lease, answers := e.Acquire(t.Context(), request)
	if lease == nil {
		t.Fatalf("%s: not held: %v", id, answers)
	}
	time.Sleep(time.Millisecond) // for the nodes that the decision did not wait for
	return lease
}

// A block's tokens go to one holder after the other, and are all larger than what was
// before, and smaller than what comes after.
func TestSuccessors(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, n)
			for i, s := range nodes {
				s.counter = 1e18 + uint64(2*i) // past every proposal, and not the same
			}
			e := newEngine(t, nodes)
			last := uint64(1e18)
			for _, id := range []string{"a", "b"} {
				lease := inBlock(t, e, id)
				tokens := []uint64{lease.Token()}
				for range 2 {
					next, ok := lease.Succeed(10 * time.Second)
					if !ok {
						t.Fatalf("N=%d: %s has no successor after %v", n, id, tokens)
					}
					lease = next
					tokens = append(tokens, lease.Token())
				}
				for _, token := range tokens {
					if token <= last {
						t.Errorf("N=%d: %s has the tokens %v after %d", n, id, tokens, last)
					}
					last = token
				}
				if next, ok := lease.Succeed(10 * time.Second); ok {
					t.Errorf("N=%d: a block of three has a fourth, %d, after %v", n, next.Token(), tokens)
				}
				lease.Release()
				rest()
			}
			single := acquired(t, e, "c")
			if next, ok := single.Succeed(10 * time.Second); ok || single.Token() <= last {
				t.Errorf("N=%d: %d after %d, and then %v", n, single.Token(), last, next)
			}
		})
	}
}

// deletedElsewhere has n nodes say that another has the key, to an extension whose caller has
// left.
func deletedElsewhere(t *testing.T, lease *Lease, n int) {
	for _, v := range lease.engine.voters[len(lease.nodes)-n:] {
		v.(*server).put("another", 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lease.Extend(ctx, lease.request.TTL)
	time.Sleep(stepTime)
}

// An attempt has a successor only where the successor's own would not be worth more.
func TestNoSuccessor(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	drift := Drift(ttl)
	for what, c := range map[string]struct {
		before func(t *testing.T, lease *Lease)
		ttl    time.Duration
		ok     bool
	}{
		"at once":               {before: func(*testing.T, *Lease) {}, ttl: ttl, ok: true},
		"in time":               {before: func(*testing.T, *Lease) { time.Sleep(drift - 3*time.Millisecond) }, ttl: ttl, ok: true},
		"late":                  {before: func(*testing.T, *Lease) { time.Sleep(drift) }, ttl: ttl},
		"run out":               {before: func(*testing.T, *Lease) { time.Sleep(ttl) }, ttl: ttl},
		"shorter TTL":           {before: func(*testing.T, *Lease) {}, ttl: ttl - time.Second},
		"longer TTL":            {before: func(*testing.T, *Lease) {}, ttl: ttl + time.Second},
		"released":              {before: func(t *testing.T, lease *Lease) { lease.Release() }, ttl: ttl},
		"left":                  {before: func(t *testing.T, lease *Lease) { lease.Detach() }, ttl: ttl},
		"extended":              {before: func(t *testing.T, lease *Lease) { time.Sleep(ttl / 2); lease.Extend(t.Context(), ttl) }, ttl: ttl, ok: true},
		"extended more":         {before: func(t *testing.T, lease *Lease) { lease.Extend(t.Context(), 2*ttl) }, ttl: ttl},
		"deleted by a minority": {before: func(t *testing.T, lease *Lease) { deletedElsewhere(t, lease, 1) }, ttl: ttl, ok: true},
		"deleted by a quorum":   {before: func(t *testing.T, lease *Lease) { deletedElsewhere(t, lease, 2) }, ttl: ttl},
		"being extended": {before: func(t *testing.T, lease *Lease) {
			go lease.Extend(t.Context(), ttl)
			synctest.Wait()
		}, ttl: ttl},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, servers(t, 3))
			lease := inBlock(t, e, "a")
			c.before(t, lease)
			if _, ok := lease.Succeed(c.ttl); ok != c.ok {
				t.Errorf("%s: has a successor: %t", what, ok)
			}
			if lease.Answer(0).Verdict != vote.Granted {
				t.Errorf("%s: node 0 says %v", what, lease.Answer(0))
			}
			rest()
		})
	}
}

// An extension of a lease that comes when another has succeeded it does nothing to the keys, which are the other's: that one holds
// from then on, and extends them.
func TestExtendAfterSuccession(t *testing.T) {
	t.Parallel()
	extend := map[string]func(t *testing.T, e *Engine, l *Lease, ttl time.Duration) Extension{
		"alone": func(t *testing.T, _ *Engine, l *Lease, ttl time.Duration) Extension {
			end, _ := l.Extend(t.Context(), ttl)
			return end
		},
		"with others": func(t *testing.T, e *Engine, l *Lease, ttl time.Duration) Extension {
			batch := []renewal{{lease: l, ttl: ttl}}
			e.extendBatch(t.Context(), batch, ttl/12)
			return batch[0].end
		},
	}
	for name, extend := range extend {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, servers(t, 3))
				before := inBlock(t, e, "a")
				next, ok := before.Succeed(10 * time.Second)
				if !ok {
					t.Fatal("no successor")
				}
				until := next.Until()
				if end := extend(t, e, before, 20*time.Second); end != Over {
					t.Errorf("the extension ended as %d, want Over", end)
				}
				if next.Until() != until {
					t.Error("it has extended the successor's keys")
				}
				if held, reason := next.Held(); !held || next.Since() != e.Now() {
					t.Errorf("the successor holds since %v: %t, %v", next.Since(), held, reason)
				}
				if end := extend(t, e, next, 20*time.Second); end != Extended {
					t.Errorf("the successor's extension ended as %d", end)
				}
				next.Release()
			})
		})
	}
}

// How long a lease may be held counts from when its own holder got it, not from the attempt.
func TestSuccessorHasALimitOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := inBlock(t, newEngine(t, servers(t, 3)), "a")
		first.Limit(3 * time.Second)
		time.Sleep(2 * time.Second)
		if end, _ := first.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Fatalf("2s after the attempt: %v", end)
		}
		time.Sleep(5 * time.Millisecond) // for the node that the decision did not wait for
		next, ok := first.Succeed(10 * time.Second)
		if !ok {
			t.Fatal("no successor")
		}
		next.Limit(3 * time.Second)
		time.Sleep(2 * time.Second)
		if end, _ := next.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Errorf("2s after it was given to this holder: %v", end)
		}
		time.Sleep(time.Second)
		if end, _ := next.Extend(t.Context(), 10*time.Second); end != Overlong {
			t.Errorf("3s after it was given to this holder: %v", end)
		}
	})
}
