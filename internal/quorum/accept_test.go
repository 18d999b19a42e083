package quorum

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// The last node is asked for a slot before the others are asked for its key. The validity runs from before
// that, and an attempt for which it is over when the others have answered has failed, as has one that took
// too long in all, on either clock: then the vote in hand is undone with the others.
func TestPermitIsValidFromBeforeTheChoice(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for name, c := range map[string]struct {
		ttl time.Duration
		// choosing is how long the choice takes, the machine sleeps for asleep in that time, and the others
		// then take others.
		choosing, asleep, others time.Duration
		held                     bool
	}{
		"at once":                    {ttl: ttl, choosing: 2 * time.Millisecond, others: 2 * time.Millisecond, held: true},
		"both take long":             {ttl: ttl, choosing: stepTime - 1, others: stepTime - 1, held: true},
		"valid for a moment":         {ttl: 40 * time.Millisecond, choosing: 30 * time.Millisecond, others: 7 * time.Millisecond, held: true},
		"over":                       {ttl: 40 * time.Millisecond, choosing: 30 * time.Millisecond, others: 8 * time.Millisecond},
		"over before they are asked": {ttl: 40 * time.Millisecond, choosing: 39 * time.Millisecond, others: 2 * time.Millisecond},
		"the machine sleeps a while": {ttl: ttl, choosing: 2 * time.Millisecond, asleep: time.Second, others: 2 * time.Millisecond, held: true},
		"the machine sleeps":         {ttl: ttl, choosing: 2 * time.Millisecond, asleep: ttl, others: 2 * time.Millisecond},
		"within the longest attempt": {ttl: ttl, choosing: vote.LongestAttempt - 3*time.Millisecond, others: 2 * time.Millisecond, held: true},
		"as long as the longest":     {ttl: ttl, choosing: vote.LongestAttempt - 2*time.Millisecond, others: 2 * time.Millisecond},
	} {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("%s, N=%d", name, n), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					nodes, machine, by := servers(t, n), newBubbleClock(), n-1
					e := engineOn(t, nodes, machine)
					for _, s := range nodes[:by] {
						s.set(func(s *server) { s.back = c.others - s.there })
					}
					nodes[by].set(func(s *server) { s.back = c.choosing - s.there })
					request := requestOf("mine")
					request.TTL = c.ttl
					start := e.Now()
					given := nodes[by].Acquire(t.Context(), request)
					machine.suspend(c.asleep)
					request.Proposed = given.Counter
					nodes[by].set(func(s *server) { s.back = time.Millisecond }) // of what follows

					lease, answers := e.Accept(t.Context(), request, start, by, given)
					// With one node nobody else is asked.
					held := c.held || n == 1 && c.choosing < c.ttl-Drift(c.ttl) && c.choosing < vote.LongestAttempt && c.asleep < c.ttl
					if (lease != nil) != held {
						t.Fatalf("held is %t: %v", lease != nil, answers)
					}
					if lease != nil {
						until, valid := lease.Until(), c.ttl-Drift(c.ttl)
						if mono, boot := until.Mono.Sub(start.Mono), until.Boot-start.Boot; mono != valid || boot != valid {
							t.Errorf("valid for %v and %v from before the choice, want %v", mono, boot, valid)
						}
						lease.Release()
					}
					rest()
					for i, s := range nodes {
						// An attempt whose TTL is over has left nothing, but is undone all the same.
						if r := s.holder(); r != "" || s.executed("acquire") > 1 || s.executed("release") < s.executed("acquire") {
							t.Errorf("node %d has the key %q; it did %v", i, r, s.order())
						}
					}
				})
			})
		}
	}
}

// Who chose the slot counts with the others, and confirms their token where they granted under a larger one.
// Where they make no quorum with it the attempt has failed, and its vote is undone.
func TestVoteInHand(t *testing.T) {
	t.Parallel()
	up, taken, down := func(*server) {}, func(s *server) { s.id = theirs }, func(s *server) { s.down = true }
	before := func(s *server) { ahead(s, 20) }
	for name, c := range map[string]struct {
		first, second func(s *server)
		held          bool
		token         uint64
		confirmed     int
	}{
		"all are free":    {first: up, second: up, held: true, token: 1e18 + 8},
		"one is taken":    {first: taken, second: up, held: true, token: 1e18 + 8},
		"both are taken":  {first: taken, second: taken},
		"one is down":     {first: up, second: down, held: true, token: 1e18 + 8},
		"both are down":   {first: down, second: down},
		"taken and down":  {first: taken, second: down},
		"another's ahead": {first: before, second: down, held: true, token: 1e18 + 21, confirmed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				e := newEngine(t, nodes)
				c.first(nodes[0])
				c.second(nodes[1])
				ahead(nodes[2], 7)
				request, start := requestOf("mine"), e.Now()
				given := nodes[2].Acquire(t.Context(), request)
				request.Proposed = given.Counter
				lease, answers := e.Accept(t.Context(), request, start, 2, given)
				if (lease != nil) != c.held {
					t.Fatalf("held is %t: %v", lease != nil, answers)
				}
				if lease != nil {
					if lease.Token() != c.token {
						t.Errorf("token %d, want %d", lease.Token(), c.token)
					}
					lease.Release()
				}
				rest()
				if n := nodes[2].executed("confirm"); n != c.confirmed {
					t.Errorf("who chose confirmed %d times; it did %v", n, nodes[2].order())
				}
				for i, r := range holders(nodes) {
					if r != "" && r != theirs {
						t.Errorf("node %d has the key %q; it did %v", i, r, nodes[i].order())
					}
				}
			})
		})
	}
}

// A vote in hand is known from the start, however late the goroutine for its node gets to run: who waits to be told of that
// node's answer is told.
func TestVoteInHandIsKnown(t *testing.T) {
	t.Parallel()
	node := new(gated)
	e := New([]Voter{node, node, node}, clock.System, time.Second)
	defer e.Close()
	given := vote.Answer{Verdict: vote.Granted, Counter: 1}
	for range 20_000 { // now and then the others are heard first
		lease, answers := e.Accept(t.Context(), requestOf("mine"), e.Now(), 2, given)
		if lease == nil {
			t.Fatal(answers)
		}
		if a := lease.Answer(2); a.Verdict != vote.Granted {
			t.Fatalf("the node's answer is %v", a.Verdict)
		}
		lease.Release()
	}
}
