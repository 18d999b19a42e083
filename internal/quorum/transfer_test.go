package quorum

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// transfersOf are those of the lease's engine.
func transfersOf(l *Lease) *Transfers { return l.engine.transfers.(*Transfers) }

// transferOf is Transfer with the next lease as a result.
func transferOf(h *Lease, request vote.Acquire) (next *Lease, answers []vote.Answer, ok bool) {
	decisions := 0
	answers, ok = transfersOf(h).Transfer(h, request, func(decided *Lease) { next, decisions = decided, decisions+1 })
	if decisions != 1 {
		panic("who waits for the decision was told it more or less than once")
	}
	return next, answers, ok
}

// A lease is transferred in one step on each node, with a larger token, and is
// over itself.
func TestTransfer(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, n)
			e := newEngine(t, nodes)
			lease := acquired(t, e, "0")
			rest()
			for k := range 5 {
				start := time.Now()
				request := requestOf(fmt.Sprint(k + 1))
				request.TTL = time.Minute
				next, answers, ok := transferOf(lease, request)
				if took := time.Since(start); next == nil || !ok || took != 2*time.Millisecond {
					t.Fatalf("N=%d: %v, %t after %v", n, answers, ok, took)
				}
				if !next.Until().Mono.Equal(start.Add(request.TTL - Drift(request.TTL))) {
					t.Errorf("N=%d: valid for %v", n, next.Until().Mono.Sub(start))
				}
				if next.Token() <= lease.Token() {
					t.Errorf("N=%d: token %d follows %d", n, next.Token(), lease.Token())
				}
				if again, _, ok := transferOf(lease, requestOf("again")); again != nil || ok {
					t.Errorf("N=%d: it was transferred twice", n)
				}
				if _, ok := lease.Release(); ok {
					t.Errorf("N=%d: it was released, too", n)
				}
				if end, _ := lease.Extend(t.Context(), time.Minute); end != Over {
					t.Errorf("N=%d: what was transferred is extended: %v", n, end)
				}
				rest()
				for _, id := range holders(nodes) {
					if id != fmt.Sprint(k+1) {
						t.Errorf("N=%d: the keys are %v", n, holders(nodes))
					}
				}
				lease = next
			}
			if acquires, others := total(nodes, "acquire"), total(nodes, "release")+total(nodes, "confirm"); acquires != 6*n || others != 0 {
				t.Errorf("N=%d: %d acquired in %d steps, with %d others", n, 6, acquires, others)
			}
			lease.Release()
			rest()
		})
	}
}

// Every mask of what may have happened to the keys before: the next holds
// when a quorum has its key, what is another's stays, and of a transfer that
// failed nothing is left.
func TestTransferEveryMask(t *testing.T) {
	t.Parallel()
	everyMask(t, 1, transferOnce)
}

func transferOnce(t *testing.T, mask []loss) {
	t.Helper()
	nodes, name, _, lease, end := heldBefore(t, mask, "mine")
	defer end()
	grants, deletable, waits := 0, 0, false
	for i, l := range mask {
		nodes[i].set(l.set)
		switch id := nodes[i].holder(); {
		case l.name == "hung":
			waits = true
		case l.name == "down":
		case id == "mine":
			deletable++
			grants++
		case id == "":
			grants++
		}
	}
	need := Majority(len(mask))
	start := time.Now()
	next, answers, ok := transferOf(lease, requestOf("next"))
	took := time.Since(start)
	longest := 4 * time.Millisecond
	if waits && deletable < need {
		longest += releasePatience * stepTime // what may be the next's is undone first
	}
	if !ok || took > longest {
		t.Errorf("%s: transferred %t after %v, want %v at most", name, ok, took, longest)
	}
	if (next != nil) != (grants >= need) {
		t.Errorf("%s: the next holds: %t, %d of its keys were granted", name, next != nil, grants)
	}
	given := 0
	for i, l := range mask {
		a := answers[i]
		if a.Verdict == vote.Granted {
			given++
		}
		right := map[string]vote.Verdict{
			"kept": vote.Granted, "lost": vote.NotOurs, "another's": vote.Held,
			"had another's": vote.NotOurs, "down": vote.NotSent, "hung": vote.Unknown,
		}[l.name]
		// An attempt that has failed waits for no more answers.
		unknown := a.Verdict == vote.Unknown && (deletable >= need || next == nil)
		if a.Verdict != right && !unknown && !(l.name == "hung" && a.Verdict == vote.NotSent) {
			t.Errorf("%s: node %d answered %v, want %v", name, i, a.Verdict, right)
		}
	}
	if (given >= need) != (deletable >= need) {
		t.Errorf("%s: %d had the lease by the answers", name, given)
	}
	rest()
	for i, l := range mask {
		want := ""
		switch {
		case l.name == "another's":
			want = theirs
		case l.name == "down" || l.name == "hung":
			want = "mine" // no message reaches it
		case next != nil:
			want = "next"
		}
		if got := nodes[i].holder(); got != want {
			t.Errorf("%s: node %d has the key %q, want %q", name, i, got, want)
		}
	}
	if next != nil {
		if next.Token() <= lease.Token() {
			t.Errorf("%s: token %d follows %d", name, next.Token(), lease.Token())
		}
		next.Release()
		rest()
	}
}

// The answers are lost after the step was done: the next does not hold where
// that leaves no quorum, and nothing of either is left.
func TestTransferWithLostAnswers(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for deaf := range n + 1 {
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, n)
				e := newEngine(t, nodes)
				lease := acquired(t, e, "mine")
				rest()
				for _, s := range nodes[:deaf] {
					s.set(func(s *server) { s.deaf = true })
				}
				// They are heard again before the release's time is over.
				time.AfterFunc(stepTime+stepTime/2, func() {
					for _, s := range nodes[:deaf] {
						s.set(func(s *server) { s.deaf = false })
					}
				})
				next, _, ok := transferOf(lease, requestOf("next"))
				if !ok || (next != nil) != (n-deaf >= Majority(n)) {
					t.Errorf("N=%d, %d deaf: %t, the next holds: %t", n, deaf, ok, next != nil)
				}
				if next != nil {
					next.Release()
				}
				rest()
				for i, s := range nodes {
					if r := s.holder(); r != "" {
						t.Errorf("N=%d, %d deaf: node %d has the key %q; it did %v", n, deaf, i, r, s.order())
					}
				}
			})
		}
	}
}

// Where the answer of a node was lost, its answer to the release tells what became of the key there. If the next was undone by
// then, nobody can say that the key was not transferred.
func TestTransferWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		undone, lost bool
		then         string
		want         vote.Verdict
	}{
		"the next has it":           {want: vote.Granted},
		"the request was lost":      {lost: true, want: vote.Granted},
		"undone":                    {undone: true, want: vote.Unknown},
		"undone, another has taken": {undone: true, then: theirs, want: vote.Unknown},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 3)
				lease := acquired(t, newEngine(t, nodes), "mine")
				rest()
				nodes[1].put("", 0) // so that the caller waits for the first node's answer
				if c.undone {
					nodes[1].put(theirs, 0)
					nodes[2].put(theirs, 0)
				}
				nodes[0].set(func(s *server) { s.deaf, s.lost = !c.lost, c.lost })
				var next *Lease
				done := make(chan []vote.Answer)
				go func() {
					decided, answers, _ := transferOf(lease, requestOf("next"))
					next = decided
					done <- answers
				}()
				time.Sleep(2 * time.Millisecond) // the step was done
				synctest.Wait()
				nodes[0].set(func(s *server) { s.deaf, s.lost = false, false })
				if c.undone {
					for nodes[0].holder() != "" {
						time.Sleep(time.Millisecond / 4)
					}
					nodes[0].put(c.then, 0)
				}
				answers := <-done
				if (next != nil) == c.undone || answers[0].Verdict != c.want || c.undone && answers[0].Err == nil {
					t.Errorf("the next holds: %t, the answers are %v", next != nil, answers)
				}
				if next != nil {
					next.Release()
				}
				rest()
			})
		})
	}
}

// laterSent is a node on which the acquire step for "mine" is sent late, and one for "next" that does not barge comes after
// a waiter.
type laterSent struct{ *server }

func (n laterSent) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	if r.ID == "mine" {
		time.Sleep(6 * time.Millisecond)
	} else if !r.Barge {
		return vote.Answer{Verdict: vote.Held}
	}
	return n.server.Acquire(ctx, r)
}

// What follows a step on a node is not sent before that step, whose key would otherwise be left behind: not the step of a
// transfer, nor that of an attempt in place of leases. A node that had no key is asked at once, and a lease that is over is
// not waited for.
func TestTransferIsSentAfterTheStepUnderWay(t *testing.T) {
	t.Parallel()
	for _, takeOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := servers(t, 5)
			e := newEngine(t, nodes)
			e.voters[4] = laterSent{nodes[4]}
			over := acquired(t, newEngine(t, servers(t, 5)), "over")
			over.Release()
			nodes[0].set(func(s *server) { s.down = true })
			lease := acquired(t, e, "mine")
			nodes[0].set(func(s *server) { s.down = false })
			request := requestOf("next")
			var next *Lease
			if takeOver {
				request.From = "mine"
				next, _ = e.TakeOver(t.Context(), request, []*Lease{lease, over})
			} else {
				next, _, _ = transferOf(lease, request)
			}
			if next == nil {
				t.Fatal("the next does not hold")
			}
			next.Release()
			rest()
			for i, want := range map[int][]string{0: {"acquire", "release"}, 1: {"acquire", "acquire", "release"}} {
				if got := nodes[i].order(); !slices.Equal(got, want) {
					t.Errorf("in place of leases: %t: node %d did %v", takeOver, i, got)
				}
			}
			if got := holders(nodes); !slices.Equal(got, repeat("", 5)) {
				t.Errorf("in place of leases: %t: left behind: %v; the last node did %v", takeOver, got, nodes[4].order())
			}
		})
	}
}

// It is transferred right after it was acquired, or while it is extended, with
// steps still under way on some nodes: there the transfer follows them.
func TestTransferFollowsTheStepUnderWay(t *testing.T) {
	t.Parallel()
	for _, extending := range []bool{false, true} {
		for back := range 5 {
			synctest.Test(t, func(t *testing.T) {
				nodes := servers(t, 5)
				for _, s := range nodes[3:] {
					s.set(func(s *server) { s.there, s.back = 10*time.Millisecond, time.Duration(back)*20*time.Millisecond })
				}
				lease := acquired(t, newEngine(t, nodes), "mine")
				if extending {
					rest()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go lease.Extend(ctx, time.Minute)
					synctest.Wait()
				}
				next, answers, ok := transferOf(lease, requestOf("next"))
				if next == nil || !ok {
					t.Fatalf("extending %t, back %d: %v", extending, back, answers)
				}
				rest()
				for i, s := range nodes {
					if r := s.holder(); r != "next" {
						t.Errorf("extending %t, back %d: node %d has the key %q; it did %v", extending, back, i, r, s.order())
					}
				}
				next.Release()
				rest()
				for i, s := range nodes {
					if r := s.holder(); r != "" {
						t.Errorf("extending %t, back %d: node %d has the key %q; it did %v", extending, back, i, r, s.order())
					}
				}
			})
		}
	}
}

// Of a transfer, a release and others at the same time, one is.
func TestTransferredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		lease := acquired(t, newEngine(t, nodes), "mine")
		rest()
		type outcome struct {
			next *Lease
			ok   bool
		}
		outcomes := make(chan outcome, 8)
		for k := range cap(outcomes) {
			go func() {
				var o outcome
				if k%2 == 0 {
					o.next, _, o.ok = transferOf(lease, requestOf(fmt.Sprint(k)))
				} else {
					_, o.ok = lease.Release()
				}
				outcomes <- o
			}()
		}
		done := 0
		var next *Lease
		for range cap(outcomes) {
			if o := <-outcomes; o.ok {
				done++
				next = o.next
			}
		}
		rest()
		if done != 1 {
			t.Errorf("%d did it", done)
		}
		if next != nil {
			next.Release()
			rest()
		}
		for _, id := range holders(nodes) {
			if id != "" {
				t.Errorf("left: %v", holders(nodes))
			}
		}
	})
}

// That others wait says nothing of what became of the keys: where a quorum has none of the lease's any more, the answers say so.
func TestTransferOfWhatWasLostWhileOthersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		e := newEngine(t, nodes)
		lease := acquired(t, e, "mine")
		rest()
		nodes[0].set(func(s *server) { s.waiting = true })
		for _, s := range nodes[1:] {
			s.put("", 0)
		}
		next, answers, ok := transferOf(lease, requestOf("next"))
		if next == nil || !ok || Count(answers, vote.NotOurs) != 2 {
			t.Errorf("the next holds: %t, %t, the answers are %v", next != nil, ok, answers)
		}
		if next != nil {
			next.Release()
		}
		rest()
	})
}
