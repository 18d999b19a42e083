package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
)

// inBlock makes an attempt that must hold, for three tokens.
func inBlock(t *testing.T, e *Engine, id string) *Hold {
	t.Helper()
	claim := claimOf(id)
	claim.More = 2
	hold, answers := e.Acquire(t.Context(), claim)
	if hold == nil {
		t.Fatalf("%s: not held: %v", id, answers)
	}
	time.Sleep(time.Millisecond) // for the nodes that the decision did not wait for
	return hold
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
				hold := inBlock(t, e, id)
				tokens := []uint64{hold.Token()}
				for range 2 {
					token, ok := hold.Successor(10 * time.Second)
					if !ok {
						t.Fatalf("N=%d: %s has no successor after %v", n, id, tokens)
					}
					tokens = append(tokens, token)
				}
				for _, token := range tokens {
					if token <= last {
						t.Errorf("N=%d: %s has the tokens %v after %d", n, id, tokens, last)
					}
					last = token
				}
				if token, ok := hold.Successor(10 * time.Second); ok {
					t.Errorf("N=%d: a block of three has a fourth, %d, after %v", n, token, tokens)
				}
				hold.Release()
				rest()
			}
			single := acquired(t, e, "c")
			if token, ok := single.Successor(10 * time.Second); ok || single.Token() <= last {
				t.Errorf("N=%d: %d after %d, and then %d", n, single.Token(), last, token)
			}
		})
	}
}

// deleted has n nodes say that another has the record, to an extension whose caller has
// left.
func deleted(t *testing.T, hold *Hold, n int) {
	for _, v := range hold.engine.voters[len(hold.seats)-n:] {
		v.(*server).put("another", 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hold.Extend(ctx, hold.claim.TTL)
	time.Sleep(stepTime)
}

// An attempt has a successor only where the successor's own would not be worth more.
func TestNoSuccessor(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	drift := Drift(ttl)
	for what, c := range map[string]struct {
		before func(t *testing.T, hold *Hold)
		ttl    time.Duration
		ok     bool
	}{
		"at once":               {before: func(*testing.T, *Hold) {}, ttl: ttl, ok: true},
		"in time":               {before: func(*testing.T, *Hold) { time.Sleep(drift - 3*time.Millisecond) }, ttl: ttl, ok: true},
		"late":                  {before: func(*testing.T, *Hold) { time.Sleep(drift) }, ttl: ttl},
		"run out":               {before: func(*testing.T, *Hold) { time.Sleep(ttl) }, ttl: ttl},
		"shorter TTL":           {before: func(*testing.T, *Hold) {}, ttl: ttl - time.Second},
		"longer TTL":            {before: func(*testing.T, *Hold) {}, ttl: ttl + time.Second},
		"released":              {before: func(t *testing.T, hold *Hold) { hold.Release() }, ttl: ttl},
		"left":                  {before: func(t *testing.T, hold *Hold) { hold.Leave() }, ttl: ttl},
		"extended":              {before: func(t *testing.T, hold *Hold) { time.Sleep(ttl / 2); hold.Extend(t.Context(), ttl) }, ttl: ttl, ok: true},
		"extended more":         {before: func(t *testing.T, hold *Hold) { hold.Extend(t.Context(), 2*ttl) }, ttl: ttl},
		"deleted by a minority": {before: func(t *testing.T, hold *Hold) { deleted(t, hold, 1) }, ttl: ttl, ok: true},
		"deleted by a quorum":   {before: func(t *testing.T, hold *Hold) { deleted(t, hold, 2) }, ttl: ttl},
		"being extended": {before: func(t *testing.T, hold *Hold) {
			go hold.Extend(t.Context(), ttl)
			synctest.Wait()
		}, ttl: ttl},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, servers(t, 3))
			hold := inBlock(t, e, "a")
			c.before(t, hold)
			if _, ok := hold.Successor(c.ttl); ok != c.ok {
				t.Errorf("%s: has a successor: %t", what, ok)
			}
			if hold.Answer(0).Verdict != ballot.Granted {
				t.Errorf("%s: node 0 says %v", what, hold.Answer(0))
			}
			rest()
		})
	}
}
