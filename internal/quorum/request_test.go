package quorum

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// asking is a node that tells what each step asks for.
type asking struct {
	*server
	told func(step, key, id string, with *vote.Keys, shared bool, ttl time.Duration)
}

func (s asking) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	s.told("acquire", r.Key, r.ID, r.With, r.Shared, r.TTL)
	return s.server.Acquire(ctx, r)
}

func (s asking) Confirm(ctx context.Context, r vote.Confirm) vote.Answer {
	s.told("confirm", r.Key, r.ID, r.With, r.Shared, 0)
	return s.server.Confirm(ctx, r)
}

func (s asking) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	s.told("extend", r.Key, r.ID, r.With, r.Shared, r.TTL)
	return s.server.Extend(ctx, r)
}

func (s asking) Repair(ctx context.Context, r vote.Extend) vote.Answer {
	s.told("repair", r.Key, r.ID, r.With, r.Shared, r.TTL)
	return s.server.Repair(ctx, r)
}

func (s asking) Release(ctx context.Context, r vote.Release) vote.Answer {
	s.told("release", r.Key, r.ID, r.With, r.Shared, r.TTL)
	return s.server.Release(ctx, r)
}

// Each step of an attempt for several keys is for all of them: a second round that stored the token beside the first key
// alone would let a later holder of another have a smaller one. So each step of a reader's is a reader's.
func TestEachStepIsForAllThatWasAskedFor(t *testing.T) {
	t.Parallel()
	for kind, with := range map[string]*vote.Keys{"one key": nil, "several keys": {"y", "z"}, "a reader": nil} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			steps := map[string][]time.Duration{}
			told := func(step, key, id string, also *vote.Keys, shared bool, ttl time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				steps[step] = append(steps[step], ttl)
				if key != "x" || id != "mine" || also != with || shared != (kind == "a reader") {
					t.Errorf("%s: the %s step is for %q and %v under %q, a reader's %t", kind, step, key, also, id, shared)
				}
			}
			nodes := servers(t, 3)
			all := make([]Voter, len(nodes))
			for i, s := range nodes {
				s.counter = uint64(time.Now().UnixMicro()) + uint64(i+1)*1000 // no two agree on a token
				all[i] = asking{s, told}
			}
			e := New(all, newBubbleClock(), stepTime)
			NewTransfers(e, time.Minute)
			defer e.Close()
			request := requestOf("mine")
			request.With, request.Shared = with, kind == "a reader"
			lease, answers := e.Acquire(t.Context(), request)
			if lease == nil {
				t.Fatalf("%s: not held: %v", kind, answers)
			}
			rest()
			nodes[0].put("", 0)
			const longer = 20 * time.Second
			if end, answers := lease.Extend(t.Context(), longer); end != Extended {
				t.Fatalf("%s: %v: %v", kind, end, answers)
			}
			rest()
			lease.Release()
			rest()
			for step, ttl := range map[string]time.Duration{"acquire": request.TTL, "confirm": 0, "extend": longer, "repair": longer, "release": longer} {
				if got := steps[step]; len(got) == 0 || slices.Max(got) != ttl || slices.Min(got) != ttl {
					t.Errorf("%s: the %s steps have the TTLs %v, want %v", kind, step, got, ttl)
				}
			}
		})
	}
}

// A node may keep the key for the longest TTL that it was asked for, so a release is tried for as long, also where the last
// extension was by a shorter one.
func TestReleaseIsTriedForTheLongestTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servers(t, 1)[0]
		var tried time.Duration
		told := func(step, _, _ string, _ *vote.Keys, _ bool, ttl time.Duration) {
			if step == "release" {
				tried = ttl
			}
		}
		e := New([]Voter{asking{s, told}}, newBubbleClock(), stepTime)
		defer e.Close()
		lease, _ := e.Acquire(t.Context(), requestOf("mine"))
		const longest = time.Minute
		for _, ttl := range []time.Duration{longest, longest / 10} {
			if end, answers := lease.Extend(t.Context(), ttl); end != Extended {
				t.Fatalf("%v: %v", end, answers)
			}
		}
		if lease.Release(); tried != longest {
			t.Errorf("the release is tried for %v, want %v", tried, longest)
		}
	})
}
