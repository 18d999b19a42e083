package quorum

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/clock"
)

// shortly is what is bid in these tests.
const shortly = 2 * time.Second

// grantTo has the last of nodes give its record to id, as a release does to a bid of now, and
// returns what of that the waiter hears.
func grantTo(e *Engine, nodes []*server, id string) Grant {
	g := Grant{Voter: len(nodes) - 1, Since: e.clock.Now(), TTL: shortly}
	nodes[g.Voter].set(func(s *server) {
		s.grant(id, shortly)
		s.counter = max(s.counter+1, uint64(time.Now().UnixMicro()))
		g.Answer = ballot.Answer{Verdict: ballot.Granted, Token: s.counter}
	})
	return g
}

// accept makes the attempt of the one that g was for, to whom from has left what is on the
// other nodes.
func accept(t *testing.T, e *Engine, g Grant, id, from string) (*Hold, []ballot.Answer) {
	t.Helper()
	claim := waiters(id, from, len(e.voters))
	claim.Proposed = g.Answer.Token
	h, answers, ok := e.Accept(t.Context(), claim, g, 0)
	if !ok {
		t.Fatal("the grant was too old")
	}
	return h, answers
}

// isBacked fails a hold whose validity ends later than the records on a quorum of nodes do.
func isBacked(t *testing.T, what string, h *Hold, nodes []*server) {
	t.Helper()
	backed := 0
	for _, s := range nodes {
		s.set(func(s *server) {
			if s.id == h.ID() && (s.expires.IsZero() || s.expires.Sub(h.Until().Mono) >= 0) {
				backed++
			}
		})
	}
	if backed < Majority(len(nodes)) {
		t.Errorf("%s: valid until %v, which %d nodes know of", what, h.Until().Mono, backed)
	}
}

// The validity of a record that a release granted runs from before the bid was sent,
// however late that is heard of; what is left of too short a one is not held by it.
func TestAccept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 1)
		e := newEngine(t, nodes)
		const valid = shortly - shortly/100 - 2*time.Millisecond
		for _, least := range []time.Duration{0, valid / 4} {
			for _, late := range []time.Duration{0, valid / 2, valid - least - 1, valid - least, valid + time.Second} {
				g := grantTo(e, nodes, "bid")
				time.Sleep(late)
				h, answers, ok := e.Accept(t.Context(), waiters("bid", "", 1), g, least)
				if want := late < valid-least; ok != want {
					t.Errorf("%v late, at least %v of %v: %t", late, least, valid, ok)
				}
				if !ok {
					continue
				}
				if got := g.Since.Until(h.Until()); got != valid || h.Token() != g.Answer.Token || h.ID() != "bid" {
					t.Errorf("%v late: valid for %v from the bid on, want %v; token %d, id %q, %v", late, got, valid, h.Token(), h.ID(), answers)
				}
				if answers, ok := h.Release(); !ok || answers[0].Verdict != ballot.Granted {
					t.Errorf("release: %v, %t", answers, ok)
				}
			}
		}
		if n := nodes[0].executed("acquire"); n != 0 {
			t.Errorf("the node was asked %d times", n)
		}
	})
}

// Over several nodes the one that granted is not asked; the hold has as long as it gave, and
// the rest of the TTL when that node alone has extended it.
func TestAcceptOverSeveral(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := keptBy(t, n)
			e := newEngine(t, nodes)
			before := acquired(t, e, "before")
			rest()
			before.Leave()
			asked := total(nodes, "acquire")
			g := grantTo(e, nodes, "next")
			time.Sleep(100 * time.Millisecond)
			start := e.clock.Now()
			h, answers := accept(t, e, g, "next", "before")
			if h == nil {
				t.Fatalf("N=%d: not held: %v", n, answers)
			}
			if took := e.clock.Now().Since(start); took != 2*time.Millisecond {
				t.Errorf("N=%d: it took %v", n, took)
			}
			if h.Token() != g.Answer.Token || h.Token() <= before.Token() {
				t.Errorf("N=%d: token %d follows %d, and was granted as %d", n, h.Token(), before.Token(), g.Answer.Token)
			}
			if got, want := g.Since.Until(h.Until()), shortly-Drift(shortly); got != want {
				t.Errorf("N=%d: valid for %v from the bid on, want %v", n, got, want)
			}
			isBacked(t, "granted", h, nodes)
			time.Sleep(10 * time.Millisecond)
			if end, answers := h.Extend(t.Context(), h.claim.TTL); end != Extended {
				t.Fatalf("N=%d: extension: %v, %v", n, end, answers)
			}
			if got, want := start.Until(h.Until()), h.claim.TTL-Drift(h.claim.TTL); got != want {
				t.Errorf("N=%d: valid for %v from the attempt on, want %v", n, got, want)
			}
			rest()
			isBacked(t, "extended", h, nodes)
			if got := []int{total(nodes, "acquire") - asked, total(nodes, "extend"), nodes[n-1].executed("extend")}; !slices.Equal(got, []int{n - 1, 1, 1}) {
				t.Errorf("N=%d: attempts, extensions and those of the node that granted: %v", n, got)
			}
			if end, answers := h.Extend(t.Context(), h.claim.TTL); end != Extended || total(nodes, "extend") != 1+n {
				t.Errorf("N=%d: the next extension: %v, %v", n, end, answers)
			}
			h.Release()
			time.Sleep(bequestTime)
			rest()
			if got := records(nodes); !slices.Equal(got, repeat("", n)) {
				t.Errorf("N=%d: left behind: %v", n, got)
			}
		})
	}
}

// Every mask of what may have happened to the records that were left on the other nodes: one
// node's grant is one vote, an extension makes nothing valid that no quorum has, and what
// fails leaves nothing.
func TestAcceptEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 2, acceptOnce)
}

func acceptOnce(t *testing.T, mask []loss) {
	t.Helper()
	keeper := len(mask) - 1
	if mask[keeper].name != "kept" {
		return // it has just granted
	}
	nodes, name, e, before, end := heldBefore(t, mask, "before")
	defer end()
	before.Leave()
	grants := 0
	for i, l := range mask {
		nodes[i].set(l.set)
		if id := nodes[i].record(); l.name != "hung" && l.name != "down" && (id == "before" || id == "") {
			grants++
		}
	}
	g := grantTo(e, nodes, "next")
	h, answers := accept(t, e, g, "next", "before")
	if (h != nil) != (grants >= Majority(len(mask))) {
		t.Errorf("%s: it holds: %t, %d nodes grant: %v", name, h != nil, grants, answers)
	}
	if h == nil {
		rest()
		if i := slices.Index(records(nodes), "next"); i >= 0 {
			t.Errorf("%s: node %d has a record of what failed", name, i)
		}
		return
	}
	if h.Token() <= before.Token() {
		t.Errorf("%s: token %d follows %d", name, h.Token(), before.Token())
	}
	isBacked(t, name+", granted", h, nodes)
	if end, answers := h.Extend(t.Context(), h.claim.TTL); end != Extended {
		t.Errorf("%s: extension: %v, %v", name, end, answers)
	}
	rest()
	isBacked(t, name+", extended", h, nodes)
	if got, least := e.clock.Now().Until(h.Until()), h.claim.TTL-2*Drift(h.claim.TTL)-settled-2*stepTime; got < least {
		t.Errorf("%s: extended to %v, want %v at least", name, got, least)
	}
	h.Release()
	rest()
}

// An extension that comes later, for longer, or when what the attempt was granted is gone
// asks everybody; one for less is no longer than that.
func TestExtensionOfGrant(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name  string
		after time.Duration
		ttl   time.Duration
		down  int
		asked int // 0 where it fails
	}{
		{"at once", 0, 10 * time.Second, 0, 1},
		{"late", time.Second, 10 * time.Second, 0, 5},
		{"for longer", 0, 20 * time.Second, 0, 5},
		{"for less", 0, 5 * time.Second, 0, 1},
		{"one of the others was down", 0, 10 * time.Second, 1, 1},
		{"two of the others were down", 0, 10 * time.Second, 2, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 5)
			e := newEngine(t, nodes)
			for i := range one.down {
				nodes[i].set(func(s *server) { s.down = true })
			}
			g := grantTo(e, nodes, "next")
			h, answers := accept(t, e, g, "next", "before")
			if h == nil {
				t.Fatalf("%s: not held: %v", one.name, answers)
			}
			time.Sleep(one.after)
			synctest.Wait() // all have answered
			start := e.clock.Now()
			if end, answers := h.Extend(t.Context(), one.ttl); end != Extended {
				t.Errorf("%s: %v, %v", one.name, end, answers)
			}
			rest()
			if got := total(nodes, "extend"); got != one.asked {
				t.Errorf("%s: %d nodes extended, want %d", one.name, got, one.asked)
			}
			isBacked(t, one.name, h, nodes)
			if got := start.Until(h.Until()); got > one.ttl-Drift(one.ttl) || got < one.ttl-2*Drift(one.ttl) {
				t.Errorf("%s: extended to %v from then on", one.name, got)
			}
			h.Release()
			rest()
		})
	}
}

// The node that granted may have a counter that is not the others': the token is one that a
// quorum stores, and larger than those before.
func TestAcceptWithAnotherCounter(t *testing.T) {
	t.Parallel()
	for _, by := range []uint64{0, 1, 1000} {
		for _, who := range []string{"the one that granted", "one of the others", "all of the others"} {
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 5)
				e := newEngine(t, nodes)
				switch who {
				case "the one that granted":
					ahead(nodes[4], by)
				case "one of the others":
					ahead(nodes[0], by)
				default:
					for _, s := range nodes[:4] {
						ahead(s, by)
					}
				}
				g := grantTo(e, nodes, "next")
				h, answers := accept(t, e, g, "next", "")
				if h == nil {
					t.Fatalf("%s: not held: %v", who, answers)
				}
				stored := 0
				for _, c := range counters(nodes) {
					if c == h.Token() {
						stored++
					}
				}
				if stored < 3 {
					t.Errorf("%s ahead by %d: token %d, the counters are %v", who, by, h.Token(), counters(nodes))
				}
				isBacked(t, who, h, nodes)
				h.Release()
				rest()
			})
		}
	}
}

// The end of a grant's validity counts on both clocks.
func TestGrantRunsOutInSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, c := servers(t, 3), newBubbleClock()
		e := engineOn(t, nodes, c)
		g := grantTo(e, nodes, "next")
		c.suspend(time.Second)
		h, answers := accept(t, e, g, "next", "")
		if h == nil {
			t.Fatalf("not held: %v", answers)
		}
		want := clock.Instant{Mono: g.Since.Mono.Add(shortly - Drift(shortly)), Boot: g.Since.Boot + shortly - Drift(shortly)}
		if got := h.Until(); got != want {
			t.Errorf("valid until %v, want %v", got, want)
		}
		h.Release()
		rest()
	})
}

// A grant with which nobody has left records, as the undoing of a failed attempt gives it, has
// nothing removed elsewhere.
func TestAcceptFromNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		e := newEngine(t, nodes)
		nodes[0].set(func(s *server) { s.deaf = true })
		h, answers := accept(t, e, grantTo(e, nodes, "next"), "next", "")
		if h == nil {
			t.Fatalf("not held: %v", answers)
		}
		rest()
		if n := total(nodes, "release"); n != 0 {
			t.Errorf("%d records were removed", n)
		}
		h.Release()
		rest()
	})
}

// The extension of what was granted for short waits for the node that granted it, and comes
// to the same by the others where that does not answer.
func TestExtensionOfGrantHearsTheNode(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name  string
		set   func(s *server)
		took  time.Duration
		short bool
	}{
		{"up", func(*server) {}, 2 * time.Millisecond, false},
		{"slow", func(s *server) { s.back = 20 * time.Millisecond }, 21 * time.Millisecond, false},
		{"lost the record", func(s *server) { s.id = "" }, 2 * time.Millisecond, false},
		{"another's", func(s *server) { s.id = theirs }, 2 * time.Millisecond, false},
		{"hung", func(s *server) { s.lost = true }, stepTime, true},
		{"down", func(s *server) { s.down = true }, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 5)
			e := newEngine(t, nodes)
			h, answers := accept(t, e, grantTo(e, nodes, "next"), "next", "before")
			if h == nil {
				t.Fatalf("%s: not held: %v", one.name, answers)
			}
			synctest.Wait()
			if !h.Short() {
				t.Errorf("%s: it is not short before", one.name)
			}
			nodes[4].set(one.set)
			start := time.Now()
			if end, answers := h.Extend(t.Context(), h.claim.TTL); end != Extended || time.Since(start) != one.took {
				t.Errorf("%s: %v after %v, %v", one.name, end, time.Since(start), answers)
			}
			if h.Short() != one.short {
				t.Errorf("%s: short: %t", one.name, h.Short())
			}
			isBacked(t, one.name, h, nodes)
			rest()
			if end, answers := h.Extend(t.Context(), h.claim.TTL); end != Extended || nodes[0].executed("extend") != 1 {
				t.Errorf("%s: the next extension: %v, %v", one.name, end, answers)
			}
			h.Release()
			rest()
		})
	}
}
