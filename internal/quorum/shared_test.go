package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// A quorum lets a reader in before the node that keeps the queue has answered: it is waited for, as long
// again as the quorum took. A writer who waits there ends the attempt, silence does not; and where
// it is known to be out the next in the order is heard.
func TestReaderHearsTheArbiter(t *testing.T) {
	t.Parallel()
	slow := func(s *server) { s.back = 2 * time.Millisecond }
	no := vote.Answer{Verdict: vote.Held, Left: time.Second} // a writer comes first
	for what, c := range map[string]struct {
		arbiter, second func(s *server)
		held            bool
		took            time.Duration
		// others: second is for all nodes but the arbiter. gone: the caller's ctx ends after 3 ms.
		others, gone bool
	}{
		"a writer waits":             {arbiter: func(s *server) { s.back, s.refusal = 2*time.Millisecond, &no }},
		"nobody waits":               {arbiter: func(s *server) { s.back = 2 * time.Millisecond }, held: true, took: 3 * time.Millisecond},
		"it says nothing":            {arbiter: func(s *server) { s.lost = true }, held: true, took: 4 * time.Millisecond},
		"it says so too late":        {arbiter: func(s *server) { s.back, s.refusal = 9*time.Millisecond, &no }, held: true, took: 4 * time.Millisecond},
		"it is down":                 {arbiter: func(s *server) { s.down = true }, held: true, took: 2 * time.Millisecond},
		"it is down, a writer waits": {arbiter: func(s *server) { s.down = true }, second: func(s *server) { s.back, s.refusal = 2*time.Millisecond, &no }},
		"it says so first":           {arbiter: func(*server) {}, second: slow, held: true, took: 2 * time.Millisecond},
		"another's key is there":     {arbiter: func(s *server) { s.put(theirs, 0) }, second: slow, held: true, took: 2 * time.Millisecond},
		"the others have another's":  {arbiter: func(s *server) { s.lost = true }, second: func(s *server) { s.put(theirs, 0) }, others: true, took: 2 * time.Millisecond},
		"the caller goes":            {arbiter: func(s *server) { s.lost = true }, gone: true, took: 3 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 5)
				c.arbiter(nodes[3])
				for i, s := range nodes {
					if c.second != nil && (i == 1 || c.others && i != 3) {
						c.second(s)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.gone {
					time.AfterFunc(3*time.Millisecond, cancel)
				}
				e := New(voters(nodes), newBubbleClock(), stepTime)
				defer e.Close()
				start := time.Now()
				lease, answers := e.Acquire(ctx, vote.Acquire{Key: "k", ID: "a", TTL: time.Second, Proposed: 1, Shared: true, Arbiters: []int{3, 1, 0, 2, 4}})
				if lease != nil != c.held {
					t.Fatalf("held %t: %v", lease != nil, answers)
				}
				if took := time.Since(start); c.took > 0 && took != c.took {
					t.Errorf("it took %v, not %v", took, c.took)
				}
				if lease != nil {
					lease.Release()
				}
				synctest.Wait()
			})
		})
	}
}
