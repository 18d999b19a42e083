package quorum

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// Every mask of what may have happened to the keys before the release: each
// node that may hold one is asked, what is another's stays, and the caller waits
// no longer than a quorum takes.
func TestReleaseEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 1, releaseOnce)
}

func releaseOnce(t *testing.T, mask []loss) {
	t.Helper()
	nodes := make([]*server, len(mask))
	name, deletable, waits := "", 0, false
	for i, l := range mask {
		nodes[i] = newServer()
		defer nodes[i].close()
		name += l.name + " "
		if l.yes {
			deletable++
		}
		waits = waits || l.name == "hung"
	}
	e := New(voters(nodes), newBubbleClock(), stepTime)
	defer e.Close()
	lease := acquired(t, e, "mine")
	rest()
	for i, l := range mask {
		nodes[i].set(l.set)
	}
	start := time.Now()
	answers, ok := lease.Release()
	took := time.Since(start)
	want := 2 * time.Millisecond
	if deletable < Majority(len(mask)) && waits {
		want = releasePatience * stepTime
	}
	if !ok || took > want {
		t.Errorf("%s: released %t after %v, want %v at most", name, ok, took, want)
	}
	quorum := deletable >= Majority(len(mask))
	deleted := 0
	for i, l := range mask {
		a := answers[i]
		if a.Verdict == vote.Granted {
			deleted++
		}
		right := map[string]vote.Verdict{
			"kept": vote.Granted, "lost": vote.NotOurs, "another's": vote.Held,
			"had another's": vote.NotOurs, "down": vote.NotSent, "hung": vote.Unknown,
		}[l.name]
		if a.Verdict != right && !(quorum && a.Verdict == vote.Unknown) {
			t.Errorf("%s: node %d answered %v", name, i, a.Verdict)
		}
	}
	if quorum != (deleted >= Majority(len(mask))) {
		t.Errorf("%s: %d deleted by the answers", name, deleted)
	}
	rest()
	for i, l := range mask {
		want := ""
		switch l.name {
		case "another's":
			want = theirs
		case "down", "hung":
			want = "mine" // no message reaches it: the voter goes on trying
		}
		if got := nodes[i].holder(); got != want {
			t.Errorf("%s: node %d has the key %q, want %q", name, i, got, want)
		}
	}
}

// A node that never was sent anything is not asked to release. One that said that
// another holds it is: a waiter may be queued there.
func TestReleaseAsksWhoMayHaveTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 5)
		nodes[0].put(theirs, 0)
		nodes[1].set(func(s *server) { s.down = true })
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		nodes[1].set(func(s *server) { s.down = false })
		answers, _ := lease.Release()
		rest()
		for i, want := range []int{1, 0, 1, 1, 1} {
			if got := nodes[i].executed("release"); got != want {
				t.Errorf("node %d was released %d times, want %d", i, got, want)
			}
		}
		if answers[0].Verdict == vote.Granted || answers[1].Verdict != vote.NotOurs {
			t.Errorf("nodes without the key answered %v and %v", answers[0].Verdict, answers[1].Verdict)
		}
	})
}

// Of many that release at once, one does.
func TestReleasedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		results := make(chan bool, 8)
		for range cap(results) {
			go func() {
				_, ok := lease.Release()
				results <- ok
			}()
		}
		done := 0
		for range cap(results) {
			if <-results {
				done++
			}
		}
		rest()
		if n := total(nodes, "release"); done != 1 || n != 3 {
			t.Errorf("%d callers released, %d commands", done, n)
		}
	})
}

// The lock is released right after it was acquired, with the acquire step still
// under way on two nodes: the release follows it there.
func TestReleaseRightAfterTheQuorum(t *testing.T) {
	t.Parallel()
	for back := range 5 {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 5)
			for _, s := range nodes[3:] {
				s.set(func(s *server) { s.there, s.back = 10*time.Millisecond, time.Duration(back)*20*time.Millisecond })
			}
			lease := acquired(t, newEngine(t, nodes), "mine")
			lease.Release()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for i, s := range nodes {
				if r := s.holder(); r != "" {
					t.Errorf("node %d has the key %q; it did %v", i, r, s.order())
				}
			}
		})
	}
}

// A step is under way on all nodes but one: the release tells what they say, too.
func TestReleaseHearsNodesThatWereBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		for _, s := range nodes[1:] {
			s.set(func(s *server) { s.back = 4 * time.Millisecond })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		if end, _ := lease.Extend(ctx, 10*time.Second); end != Missed {
			t.Fatalf("%v", end)
		}
		if answers, ok := lease.Release(); !ok || !deleted(answers) {
			t.Errorf("released %t: %v", ok, answers)
		}
		rest()
	})
}

// absent is a node whose acquire step does not end with its context.
type absent struct{ *server }

func (n absent) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	time.Sleep(2 * stepTime)
	return n.server.Acquire(context.WithoutCancel(ctx), r)
}

// A release waits for a step under way on the node that keeps the queue only where the attempt had a place there, and for a
// quarter of a step's time at most. What that step leaves behind is released after it.
func TestReleaseBesideAStepThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, queued := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 3)
			e := newEngine(t, nodes)
			e.voters[0] = absent{nodes[0]}
			request, longest := requestOf("mine"), 2*time.Millisecond
			if queued {
				request.Ticket = vote.Ticket{Waiter: "w"}
				longest += stepTime / 4
			}
			lease, answers := e.Acquire(t.Context(), request)
			if lease == nil {
				t.Fatal(answers)
			}
			start := time.Now()
			answers, ok := lease.Release()
			if took := time.Since(start); !ok || took != longest || !deleted(answers) {
				t.Errorf("queued %t: released %t after %v, want %v: %v", queued, ok, took, longest, answers)
			}
			rest()
			if got := holders(nodes); !slices.Equal(got, repeat("", 3)) || nodes[0].executed("release") != 1 {
				t.Errorf("queued %t: left behind: %v; the node did %v", queued, got, nodes[0].order())
			}
		})
	}
}

// What was taken over by the time of a release counts as released as soon as one answer says that somebody was woken up, which
// is waited for.
func TestTakenOverBeforeTheRelease(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		for _, next := range []string{"next", ""} { // which has released where it is not there any more
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				nodes[2].set(func(s *server) { s.waiting = known })
				lease := acquired(t, newEngine(t, nodes), "mine")
				rest()
				for _, s := range nodes[:2] { // they may have the key, and did not say so last
					s.set(func(s *server) { s.deaf = true })
				}
				lease.Extend(t.Context(), 10*time.Second)
				for _, s := range nodes[:2] {
					s.put(next, 0)
					s.set(func(s *server) { s.deaf = false })
				}
				nodes[1].set(func(s *server) { s.lost = known })
				nodes[2].set(func(s *server) { s.waiting, s.back = true, 3*time.Millisecond })
				start := time.Now()
				answers, ok := lease.Release()
				if !ok || answers[0].Verdict != vote.Granted || answers[2].Verdict != vote.Granted || time.Since(start) >= stepTime {
					t.Errorf("known to wait %t, %q has the key: %t, %v after %v", known, next, ok, answers, time.Since(start))
				}
				if known && answers[1].Verdict != vote.Unknown {
					t.Errorf("the node that did not answer says %v", answers[1])
				}
				rest()
			})
		}
	}
}
