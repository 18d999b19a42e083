package quorum

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// What each verb makes of each state of a lease, and whether it says that it did something. The
// table is the drawing at type state.
func TestLeaseStates(t *testing.T) {
	t.Parallel()
	reasons := map[string]error{"Lose": errors.New("lost"), "Lapse": errors.New("lapsed"), "Unlock": errors.New("unlocked")}
	verbs := map[string]func(l *Lease) bool{
		"Lose":    func(l *Lease) bool { _, first := l.Lose(reasons["Lose"]); return first },
		"Lapse":   func(l *Lease) bool { _, first := l.Lapse(l.until, reasons["Lapse"]); return first },
		"Unlock":  func(l *Lease) bool { _, first := l.Unlock(reasons["Unlock"]); return first },
		"Keep":    func(l *Lease) bool { before := l.state; l.Keep(); return l.state != before },
		"Detach":  (*Lease).Detach,
		"Release": func(l *Lease) bool { _, ok := l.Release(); return ok },
		"Transfer": func(l *Lease) bool {
			_, ok := transfersOf(l).Transfer(l, vote.Acquire{Key: l.request.Key, ID: "next", TTL: l.request.TTL}, func(*Lease) {})
			return ok
		},
		"Succeed": func(l *Lease) bool { _, ok := l.Succeed(l.request.TTL); return ok },
	}
	ways := map[state][]string{
		held: nil, lost: {"Lose"}, unlocked: {"Unlock"}, kept: {"Unlock", "Keep"},
		released: {"Release"}, transferred: {"Succeed"}, detached: {"Detach"},
	}
	type change struct {
		from state
		verb string
	}
	changes := map[change]state{{held, "Lose"}: lost, {held, "Lapse"}: lost, {held, "Unlock"}: unlocked, {unlocked, "Keep"}: kept}
	for _, from := range []state{held, lost, unlocked, kept} {
		for verb, to := range map[string]state{"Release": released, "Transfer": transferred, "Succeed": transferred, "Detach": detached} {
			changes[change{from, verb}] = to
		}
	}
	for from, way := range ways {
		for verb, do := range verbs {
			synctest.Test(t, func(t *testing.T) {
				l := inBlock(t, newEngine(t, servers(t, 3)), "a")
				for _, v := range way {
					verbs[v](l)
				}
				if l.state != from {
					t.Fatalf("%v lead to %d, not to %d", way, l.state, from)
				}
				before := l.Until()
				to, changed := changes[change{from, verb}]
				if !changed {
					to = from
				}
				if did := do(l); did != changed || l.state != to {
					t.Errorf("%s in state %d: %t, and it is %d; want %t and %d", verb, from, did, l.state, changed, to)
				}
				ok, reason := l.Held()
				if ok != (to == held) {
					t.Errorf("state %d is held: %t", to, ok)
				}
				if first := slices.IndexFunc(way, func(v string) bool { return reasons[v] != nil }); first >= 0 && reason != reasons[way[first]] {
					t.Errorf("%s in state %d: the reason is %v", verb, from, reason)
				}
				// What is told of the end of a lease does not change after it.
				time.Sleep(time.Second)
				l.Extend(t.Context(), 2*l.request.TTL)
				if to != held && l.Until() != before {
					t.Errorf("%s in state %d: Until changed from %v to %v", verb, from, before, l.Until())
				}
				rest()
			})
		}
	}
}

// A holder saw that its validity runs out, and an extension moves the end before the holder comes to say so.
func TestLapseOfAnEndThatHasMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lease := acquired(t, newEngine(t, servers(t, 3)), "mine")
		seen := lease.Until()
		if end, _ := lease.Extend(t.Context(), 20*time.Second); end != Extended {
			t.Fatal(end)
		}
		if why, first := lease.Lapse(seen, errors.New("it seemed so")); why != nil || first {
			t.Errorf("lost, because %v", why)
		}
		why := errors.New("its validity ran out")
		if got, first := lease.Lapse(lease.Until(), why); got != why || !first {
			t.Errorf("%v, %t", got, first)
		}
	})
}

// A node's answer to the attempt is told when it comes, which may be after the lock was held, or at once where it has
// come; also where none came in time.
func TestLateAnswerIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 4)
		nodes[1].set(func(s *server) { s.back = 20 * time.Millisecond })
		nodes[2].set(func(s *server) { s.there = 30 * time.Millisecond })
		nodes[3].set(func(s *server) { s.deaf = true })
		lease := acquired(t, newEngine(t, nodes), "mine")
		var mu sync.Mutex // guards told
		told := make([][]vote.Verdict, len(nodes))
		for i := range nodes {
			lease.WhenAnswered(i, func(a vote.Answer) {
				mu.Lock()
				defer mu.Unlock()
				told[i] = append(told[i], a.Verdict)
			})
		}
		rest()
		mu.Lock()
		defer mu.Unlock()
		if want := "[[granted] [granted] [granted] [no reply]]"; fmt.Sprint(told) != want {
			t.Errorf("told were %v, want %s", told, want)
		}
	})
}

// Detach waits for the steps under way for as long as any step has: a release by somebody else must not overtake them.
func TestDetachWaitsForTheStepsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[2].set(func(s *server) { s.there = stepTime / 2 })
		if end, answers := lease.Extend(t.Context(), 10*time.Second); end != Extended {
			t.Fatalf("%v: %v", end, answers)
		}
		if !lease.Detach() || nodes[2].executed("extend") != 1 {
			t.Errorf("detached before the last node extended: it has executed %v", nodes[2].order())
		}
	})
}
