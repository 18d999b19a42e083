package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/vote"
)

// loss is what happened to a held lock's key on one node before an
// extension.
type loss struct {
	name string
	set  func(s *server)
	yes  bool // it extends
	gone bool // it says that it has no record of ours
	// repaired: the key is given back when a quorum extends.
	repaired bool
}

func losses() []loss {
	return []loss{
		{name: "kept", set: func(*server) {}, yes: true},
		{name: "lost", set: func(s *server) { s.id = "" }, gone: true, repaired: true},
		{name: "another's", set: func(s *server) { s.id, s.expires = theirs, time.Time{} }, gone: true},
		{name: "had another's", set: func(s *server) { s.id = ""; s.counter += 1000 }, gone: true},
		{name: "down", set: func(s *server) { s.down = true }},
		{name: "hung", set: func(s *server) { s.lost = true }},
	}
}

// Every mask of what may have happened to the keys: extended by a quorum
// only, impossible as soon as it is, repaired only after a quorum and only
// where nobody else has been.
func TestExtendEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 1, extendOnce)
}

// fates calls f with everything that may have happened to n nodes: in every
// order for n up to 3, in a random one for more.
func fates(n int, rng *rand.Rand, f func(mask []loss)) {
	of := losses()
	var fill func(chosen []loss, from int)
	fill = func(chosen []loss, from int) {
		if len(chosen) == n {
			mask := slices.Clone(chosen)
			if n > 3 {
				rng.Shuffle(n, func(i, j int) { mask[i], mask[j] = mask[j], mask[i] })
			}
			f(mask)
			return
		}
		for i := from; i < len(of); i++ {
			next := i
			if n <= 3 {
				next = 0
			}
			fill(append(chosen[:len(chosen):len(chosen)], of[i]), next)
		}
	}
	fill(nil, 0)
}

// everyMask has once try every mask of losses on least to five nodes, until one
// fails.
func everyMask(t *testing.T, least int, once func(t *testing.T, mask []loss)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for n := least; n <= 5; n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fates(n, rng, func(mask []loss) {
					if !t.Failed() {
						once(t, mask)
					}
				})
			})
		})
	}
}

// heldBefore returns nodes that all have the key of a lease under id, to which mask is to
// happen, and what the mask is called. end ends them.
func heldBefore(t *testing.T, mask []loss, id string) (nodes []*server, name string, e *Engine, lease *Lease, end func()) {
	t.Helper()
	var names []string
	for _, l := range mask {
		nodes = append(nodes, newServer())
		names = append(names, l.name)
	}
	e = New(voters(nodes), newBubbleClock(), stepTime)
	lease = acquired(t, e, id)
	rest()
	return nodes, strings.Join(names, " "), e, lease, func() {
		e.Close()
		for _, s := range nodes {
			s.close()
		}
	}
}

func extendOnce(t *testing.T, mask []loss) {
	t.Helper()
	need := Majority(len(mask))
	nodes := make([]*server, len(mask))
	name, yes, gone := "", 0, 0
	for i, l := range mask {
		nodes[i] = newServer()
		defer nodes[i].close()
		name += l.name + " "
		if l.yes {
			yes++
		}
		if l.gone {
			gone++
		}
	}
	e := New(voters(nodes), newBubbleClock(), stepTime)
	defer e.Close()
	lease := acquired(t, e, "mine")
	rest()
	before := lease.Until()
	for i, l := range mask {
		nodes[i].set(l.set)
	}
	start := time.Now()
	end, answers := lease.Extend(t.Context(), 10*time.Second)
	rest()

	want := Missed
	if yes >= need {
		want = Extended
	}
	if end != want {
		t.Errorf("%s: %v, want %v: %v", name, end, want, answers)
	}
	valid := lease.Until().Mono.Sub(start)
	switch {
	case want == Extended && valid != 10*time.Second-Drift(10*time.Second):
		t.Errorf("%s: valid for %v from the send of the extension", name, valid)
	case want != Extended && lease.Until() != before:
		t.Errorf("%s: valid until %v, was %v before a round that no quorum confirmed", name, lease.Until(), before)
	}
	if got, want := lease.Impossible(), gone-countRepaired(mask, want) > len(mask)-need; got != want {
		t.Errorf("%s: impossible is %t, want %t", name, got, want)
	}
	for i, l := range mask {
		want := "mine"
		switch {
		case l.name == "another's":
			want = theirs
		case l.gone && !(l.repaired && end == Extended):
			want = ""
		}
		if got := nodes[i].record(); got != want {
			t.Errorf("%s: node %d has the record %q, want %q; it did %v", name, i, got, want, nodes[i].order())
		}
		if end != Extended && nodes[i].executed("repair") > 0 {
			t.Errorf("%s: node %d was repaired without a quorum", name, i)
		}
		if l.name != "lost" && l.name != "had another's" && nodes[i].executed("repair") > 0 {
			t.Errorf("%s: node %d was repaired, and had no need", name, i)
		}
	}

	lease.Release()
	rest()
	for i, l := range mask {
		if l.name != "down" && l.name != "hung" && nodes[i].record() == "mine" {
			t.Errorf("%s: node %d has our record after the release", name, i)
		}
	}
}

func countRepaired(mask []loss, end Extension) int {
	n := 0
	for _, l := range mask {
		if l.repaired && end == Extended {
			n++
		}
	}
	return n
}

// The node that lost its key says so before the quorum is there, and after
// it: it is repaired in both cases, and only then.
func TestRepairFollowsTheQuorum(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%t", late), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				lease := acquired(t, newEngine(t, nodes), "mine")
				rest()
				nodes[0].put("", 0)
				slow := nodes[1:]
				if late {
					slow = nodes[:1]
				}
				for _, s := range slow {
					s.set(func(s *server) { s.back = 10 * time.Millisecond })
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
					t.Fatalf("%v", end)
				}
				if n := nodes[0].executed("repair"); n != 0 {
					t.Errorf("repaired %d times before the quorum was there", n)
				}
				rest()
				if n, r := nodes[0].executed("repair"), nodes[0].record(); n != 1 || r != "mine" {
					t.Errorf("repaired %d times, record %q", n, r)
				}
				if c := counters(nodes); c[0] != lease.Token() {
					t.Errorf("the repaired node's counter is %d, the token %d", c[0], lease.Token())
				}
			})
		})
	}
}

// The node says late that it lost the key: not before the validity that the
// quorum confirmed has run out, and then it gets nothing.
func TestNoRepairAfterTheValidity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put("", 0)
		nodes[0].set(func(s *server) { s.back = 30 * time.Millisecond })
		time.Sleep(time.Until(lease.Until().Mono) - 10*time.Millisecond)
		if end, _ := lease.Extend(t.Context(), 20*time.Millisecond); end != Extended {
			t.Fatalf("%v", end)
		}
		rest()
		if n := total(nodes, "repair"); n != 0 {
			t.Errorf("%d repairs of what had run out", n)
		}
	})
}

// Nothing is sent for a lock whose validity is over, by either clock.
func TestExtendAfterLapse(t *testing.T) {
	t.Parallel()
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprintf("asleep=%t", asleep), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				c := newBubbleClock()
				lease := acquired(t, engineOn(t, nodes, c), "mine")
				rest()
				if asleep {
					c.suspend(time.Until(lease.Until().Mono))
				} else {
					time.Sleep(time.Until(lease.Until().Mono))
				}
				// It is free, and stays so.
				for _, s := range nodes {
					s.put("", 0)
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Lapsed {
					t.Errorf("%v", end)
				}
				rest()
				if n := total(nodes, "extend") + total(nodes, "repair"); n != 0 {
					t.Errorf("%d steps were sent for it", n)
				}
			})
		})
	}
}

// A quorum extends the keys, and its answers come when the validity has run
// out: that is a lost lock, whether the time was spent on the way or asleep.
func TestExtensionThatCompletesTooLate(t *testing.T) {
	t.Parallel()
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprintf("asleep=%t", asleep), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				c := newBubbleClock()
				lease := acquired(t, engineOn(t, nodes, c), "mine")
				rest()
				until := lease.Until()
				for _, s := range nodes {
					s.set(func(s *server) { s.back = 20 * time.Millisecond })
				}
				if asleep {
					time.AfterFunc(10*time.Millisecond, func() { c.suspend(10 * time.Second) })
				} else {
					time.Sleep(time.Until(until.Mono) - 20*time.Millisecond)
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Lapsed {
					t.Errorf("%v", end)
				}
				if lease.Until() != until {
					t.Errorf("the validity moved from %v to %v", until, lease.Until())
				}
				if n := total(nodes, "extend"); n != 3 {
					t.Fatalf("%d nodes extended: the case is not made", n)
				}
				// What was extended all the same is released.
				lease.Release()
				rest()
				if r := records(nodes); r[0]+r[1]+r[2] != "" {
					t.Errorf("left: %q", r)
				}
			})
		})
	}
}

// The last moment at which an extension counts, and the first at which it does
// not.
func TestExtensionAtTheVeryEnd(t *testing.T) {
	t.Parallel()
	for _, left := range []time.Duration{2*time.Millisecond + 1, 2 * time.Millisecond} {
		t.Run(left.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3) // a round trip takes 2 ms
				lease := acquired(t, newEngine(t, nodes), "mine")
				time.Sleep(time.Until(lease.Until().Mono) - left)
				want := Lapsed
				if left > 2*time.Millisecond {
					want = Extended
				}
				if end, _ := lease.Extend(t.Context(), 10*time.Second); end != want {
					t.Errorf("%v, want %v", end, want)
				}
			})
		})
	}
}

// A shorter TTL takes nothing from what was granted, here and on the nodes.
func TestExtendNeverShortens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		if end, _ := lease.Extend(t.Context(), time.Second); end != Extended {
			t.Errorf("%v", end)
		}
		rest()
		if lease.Until() != until {
			t.Errorf("valid until %v, was %v", lease.Until(), until)
		}
		for i, s := range nodes {
			s.set(func(s *server) {
				if !s.expires.After(until.Mono) {
					t.Errorf("node %d keeps the record until %v, the lock is valid until %v", i, s.expires, until.Mono)
				}
			})
		}
	})
}

// Two nodes of three say that they have nothing: it is impossible at once,
// without waiting for the third.
func TestImpossibleAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put("", 0)
		nodes[1].put(theirs, 0)
		nodes[2].set(func(s *server) { s.lost = true })
		start := time.Now()
		end, _ := lease.Extend(t.Context(), 10*time.Second)
		if took := time.Since(start); end != Missed || took != 2*time.Millisecond || !lease.Impossible() {
			t.Errorf("%v after %v, impossible %t", end, took, lease.Impossible())
		}
		rest()
		if n := total(nodes, "repair"); n != 0 {
			t.Errorf("%d repairs", n)
		}
	})
}

// What nodes said in different rounds adds up, until they say otherwise.
func TestImpossibleOverSeveralRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put(theirs, 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended || lease.Impossible() {
			t.Fatalf("%v, impossible %t", end, lease.Impossible())
		}
		rest()
		nodes[0].set(func(s *server) { s.lost = true })
		nodes[1].put("", 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Missed || !lease.Impossible() {
			t.Fatalf("%v, impossible %t", end, lease.Impossible())
		}
	})
}

// A node that was given back its key counts again.
func TestRepairedNodeIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		for _, i := range []int{0, 1, 2} {
			nodes[i].put("", 0)
			if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended || lease.Impossible() {
				t.Fatalf("node %d: %v, impossible %t", i, end, lease.Impossible())
			}
			rest()
		}
		for i, r := range records(nodes) {
			if r != "mine" {
				t.Errorf("node %d has the record %q", i, r)
			}
		}
	})
}

// Where the answer to a repair was lost, the node may have the key again.
func TestNodeThatMayBeRepairedIsNotGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[0].put("", 0)
		for _, s := range nodes[1:] {
			s.set(func(s *server) { s.back = 10 * time.Millisecond })
		}
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Fatalf("%v", end)
		}
		nodes[0].set(func(s *server) { s.deaf = true })
		rest()
		if r := nodes[0].record(); r != "mine" {
			t.Fatalf("the repaired node has the record %q", r)
		}
		nodes[1].put("", 0)
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Missed || lease.Impossible() {
			t.Errorf("%v, impossible %t, with the records %q", end, lease.Impossible(), records(nodes))
		}
		rest()
	})
}

// The caller's ctx ends its wait. The round is missed, and the lock holds as
// long as it did.
func TestExtendCallerGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		until := lease.Until()
		thaws := []func(){nodes[0].freeze(), nodes[1].freeze()}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		start := time.Now()
		if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed || time.Since(start) != 5*time.Millisecond {
			t.Errorf("%v after %v", end, time.Since(start))
		}
		if lease.Until() != until {
			t.Error("the validity changed")
		}
		for _, thaw := range thaws {
			thaw()
		}
		rest()
		if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Errorf("the next one: %v", end)
		}
	})
}

// One round runs at a time; who comes meanwhile waits for it, or for its ctx.
func TestOneExtensionAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		for _, s := range nodes {
			s.set(func(s *server) { s.back = 10 * time.Millisecond })
		}
		start := time.Now()
		ends := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				if end, _ := lease.Extend(context.Background(), 10*time.Second); end != Extended {
					t.Errorf("%v", end)
				}
				ends <- time.Since(start)
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed || time.Since(start) != 5*time.Millisecond {
			t.Errorf("%v after %v", end, time.Since(start))
		}
		if first, second := <-ends, <-ends; first != 11*time.Millisecond || second != 22*time.Millisecond {
			t.Errorf("rounds ended after %v and %v", first, second)
		}
		rest()
		// The second round does not wait for a node that still has the first.
		if n := total(nodes, "extend"); n < 5 || n > 6 {
			t.Errorf("%d nodes extended in two rounds", n)
		}
	})
}

// The release comes while an extension or its repair is under way on a node: it
// follows there, and nothing is left.
func TestReleaseDuringExtension(t *testing.T) {
	t.Parallel()
	for _, moment := range []time.Duration{0, 500 * time.Microsecond, 1500 * time.Microsecond, 2 * time.Millisecond, 2500 * time.Microsecond,
		3500 * time.Microsecond, 5 * time.Millisecond, 7 * time.Millisecond, 12 * time.Millisecond} {
		for _, confirmed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v confirmed=%t", moment, confirmed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					nodes := servers(t, 5)
					lease := acquired(t, newEngine(t, nodes), "mine")
					rest()
					late := 10 * time.Millisecond
					nodes[0].put("", 0) // to be repaired
					nodes[1].put("", 0) // to be repaired, and says so late
					nodes[1].set(func(s *server) { s.back = late })
					if !confirmed {
						nodes[2].set(func(s *server) { s.there = late })
					}
					go lease.Extend(context.Background(), 10*time.Second)
					synctest.Wait()
					time.Sleep(moment)
					lease.Release()
					rest()
					for i, s := range nodes {
						if r := s.record(); r != "" {
							t.Errorf("node %d has the record %q; it did %v", i, r, s.order())
						}
					}
					if end, _ := lease.Extend(t.Context(), 10*time.Second); end != Over {
						t.Errorf("an extension after the release: %v", end)
					}
				})
			})
		}
	}
}

// A step that an answer says is not possible is no yes.
func TestExtendCountsGrantsOnly(t *testing.T) {
	t.Parallel()
	for v := vote.Unknown; v <= vote.Refused; v++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			lease := acquired(t, newEngine(t, nodes), "mine")
			rest()
			for _, s := range nodes {
				s.set(func(s *server) { s.refusal = &vote.Answer{Verdict: v} })
			}
			want := Missed
			if v == vote.Granted {
				want = Extended
			}
			if end, _ := lease.Extend(t.Context(), 10*time.Second); end != want {
				t.Errorf("%v: %v", v, end)
			}
			if gone := v == vote.NotOurs || v == vote.Held; lease.Impossible() != gone {
				t.Errorf("%v: impossible is %t", v, lease.Impossible())
			}
		})
	}
}
