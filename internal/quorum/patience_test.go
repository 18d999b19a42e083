package quorum

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// part is one node's in an attempt: how far its counter is ahead, and when
// its answer to the acquire step is known. A node without a counter is another's;
// one without a time says nothing.
type part struct {
	ahead uint64
	at    time.Duration
}

// overdue is later than any patience ends here.
const overdue = 20 * time.Millisecond

// Every way in which nodes' counters differ, with the answers beyond the first
// quorum in time, late, missing or another's: a quorum that agrees holds when its
// last answer comes, whatever the others gave; the second round is made when
// patience has ended or no quorum can agree, and only then.
func TestSplitNodes(t *testing.T) {
	t.Parallel()
	counters := []uint64{4, 50, 99}
	if testing.Short() {
		counters = counters[:2]
	}
	for _, c := range []struct {
		// first are when the quorum's answers come, and rest what becomes of the others.
		first []time.Duration
		rest  [][]part
	}{
		{
			first: []time.Duration{2 * time.Millisecond, 3 * time.Millisecond},
			rest:  [][]part{others(5 * time.Millisecond)},
		},
		{
			first: []time.Duration{2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond},
			rest:  [][]part{others(5 * time.Millisecond), others(7 * time.Millisecond)},
		},
	} {
		n := len(c.first) + len(c.rest)
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seconds, runs := 0, 0
				var fill func(parts []part)
				fill = func(parts []part) {
					switch i := len(parts); {
					case t.Failed():
					case i == n:
						runs++
						seconds += splitAttempt(t, parts)
					case i < len(c.first):
						for _, counter := range counters {
							fill(append(slices.Clone(parts), part{counter, c.first[i]}))
						}
					default:
						for _, r := range c.rest[i-len(c.first)] {
							if r.ahead == 0 {
								fill(append(slices.Clone(parts), r))
								continue
							}
							for _, counter := range counters {
								fill(append(slices.Clone(parts), part{counter, r.at}))
							}
						}
					}
				}
				fill(nil)
				t.Logf("%d attempts, %d second rounds", runs, seconds)
			})
		})
	}
}

// others is what may become of a node that is not of the first quorum and would
// answer at that time.
func others(at time.Duration) []part {
	return []part{{1, at}, {0, at}, {1, overdue}, {0, 0}}
}

// splitAttempt makes one attempt on nodes that answer so, and returns how many
// second rounds it took.
func splitAttempt(t *testing.T, parts []part) int {
	nodes := make([]*server, len(parts))
	for i, r := range parts {
		nodes[i] = newServer()
		defer nodes[i].close()
		if r.ahead == 0 {
			nodes[i].put(theirs, 0)
		}
		ahead(nodes[i], r.ahead)
		nodes[i].set(func(s *server) { s.back, s.lost = r.at-s.there, r.at == 0 })
	}
	agreed, second, token := expected(parts)
	engine := New(voters(nodes), newBubbleClock(), stepTime)
	defer engine.Close()
	if second > 0 {
		// It finds all nodes quick.
		time.AfterFunc(second-time.Microsecond, func() {
			for _, s := range nodes {
				s.set(func(s *server) { s.back = time.Millisecond })
			}
		})
	}
	start := time.Now()
	lease, answers := engine.Acquire(t.Context(), requestOf("mine"))
	took := time.Since(start)
	want, rounds := agreed, 0
	if agreed == 0 {
		want, rounds = second+2*time.Millisecond, 1
	}
	switch {
	case lease == nil:
		t.Fatalf("%v: not held: %v", parts, answers)
	case took != want || engine.SecondRounds() != uint64(rounds):
		t.Errorf("%v: held after %v and %d second rounds, want %v and %d", parts, took, engine.SecondRounds(), want, rounds)
	case lease.Token() != 1e18+token+1:
		t.Errorf("%v: token %d, want %d", parts, lease.Token(), uint64(1e18+token+1))
	case rounds == 0 && total(nodes, "confirm") > 0:
		t.Errorf("%v: a confirmation without a second round", parts)
	}
	stored := 0
	for _, counter := range counters(nodes) {
		if counter == lease.Token() {
			stored++
		}
	}
	if stored < Majority(len(nodes)) {
		t.Errorf("%v: token %d is stored on %d nodes: %v", parts, lease.Token(), stored, counters(nodes))
	}
	lease.Release()
	rest()
	for i, r := range holders(nodes) {
		if r != "" && r != theirs {
			t.Errorf("%v: node %d keeps %q", parts, i, r)
		}
	}
	return rounds
}

// expected says when a quorum agrees, or else when the second round is made; and
// which node's counter the token follows.
func expected(parts []part) (agreed, second time.Duration, token uint64) {
	need := Majority(len(parts))
	order := slices.Clone(parts)
	slices.SortStableFunc(order, func(a, b part) int {
		if a.at == 0 || b.at == 0 {
			return int(b.at - a.at) // what never comes is last
		}
		return int(a.at - b.at)
	})
	same := make(map[uint64]int)
	granted, most, largest := 0, 0, uint64(0)
	var patience time.Duration
	for i, r := range order {
		if r.at == 0 || patience > 0 && r.at > patience {
			break
		}
		if r.ahead > 0 {
			granted++
			same[r.ahead]++
			most, largest = max(most, same[r.ahead]), max(largest, r.ahead)
			if same[r.ahead] == need {
				return r.at, 0, r.ahead
			}
		}
		if granted >= need {
			if patience == 0 {
				patience = 2 * r.at
			}
			if most+len(order)-i-1 < need {
				return 0, r.at, largest
			}
		}
	}
	return 0, patience, largest
}

// Two nodes are split and the third is lost: patience ends half way to the limit
// of the first round at the latest, and has a quarter of a step's time.
func TestPatienceIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ quorum, second time.Duration }{
		{2 * time.Millisecond, 4 * time.Millisecond},
		{12 * time.Millisecond, 24 * time.Millisecond},
		{20 * time.Millisecond, 32500 * time.Microsecond},
		{40 * time.Millisecond, 45 * time.Millisecond},
		{49 * time.Millisecond, 49500 * time.Microsecond},
	} {
		t.Run(c.quorum.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				ahead(nodes[0], 99)
				ahead(nodes[1], 4)
				nodes[2].set(func(s *server) { s.lost = true })
				for _, s := range nodes {
					s.set(func(s *server) { s.back = c.quorum - s.there })
				}
				start := time.Now()
				lease := acquired(t, newEngine(t, nodes), "mine")
				if took := time.Since(start); took != c.second+c.quorum {
					t.Errorf("held after %v, want a second round at %v", took, c.second)
				}
				lease.Release()
			})
		})
	}
}

// A caller that goes while nodes are split leaves nothing.
func TestCallerGoneWhileSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		ahead(nodes[0], 99)
		nodes[2].set(func(s *server) { s.lost = true })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		start := time.Now()
		lease, _ := newEngine(t, nodes).Acquire(ctx, requestOf("mine"))
		if took := time.Since(start); lease != nil || took != 3*time.Millisecond {
			t.Errorf("held is %t after %v", lease != nil, took)
		}
		rest()
		if r := holders(nodes); r[0]+r[1]+r[2] != "" || total(nodes, "confirm") > 0 {
			t.Errorf("left: %q, after %d confirmations", r, total(nodes, "confirm"))
		}
	})
}

// A grant that comes during the second round is confirmed too. It is no round of
// its own, and the attempt takes no longer for it.
func TestSecondRoundIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 5)
		ahead(nodes[0], 99)
		for _, s := range nodes[1:4] {
			ahead(s, 4)
		}
		nodes[3].set(func(s *server) { s.back = 29 * time.Millisecond })
		nodes[4].set(func(s *server) { s.lost = true })
		time.AfterFunc(3*time.Millisecond, func() {
			for _, s := range nodes {
				s.set(func(s *server) { s.deaf = true }) // no confirmation is answered
			}
		})
		engine := newEngine(t, nodes)
		start := time.Now()
		lease, answers := engine.Acquire(t.Context(), requestOf("mine"))
		if took := time.Since(start); lease != nil || took != 4*time.Millisecond+stepTime {
			t.Fatalf("held is %t after %v: %v", lease != nil, took, answers)
		}
		if engine.SecondRounds() != 1 || nodes[3].executed("confirm") != 1 {
			t.Errorf("%d second rounds; node 3 confirmed %d times", engine.SecondRounds(), nodes[3].executed("confirm"))
		}
	})
}
