package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// transfersOf are those of the lease's engine.
func transfersOf(l *Lease) *Transfers { return l.engine.transfers.(*Transfers) }

// transferOf is Transfer with the next lease as a result.
func transferOf(h *Lease, request vote.Acquire) (next *Lease, answers []vote.Answer, ok bool) {
	answers, ok = transfersOf(h).Transfer(h, request, func(decided *Lease) { next = decided })
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
				for _, id := range records(nodes) {
					if id != fmt.Sprint(k+1) {
						t.Errorf("N=%d: the records are %v", n, records(nodes))
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
		switch id := nodes[i].record(); {
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
		t.Errorf("%s: the next holds: %t, %d of its records were granted", name, next != nil, grants)
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
		if got := nodes[i].record(); got != want {
			t.Errorf("%s: node %d has the record %q, want %q", name, i, got, want)
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
					if r := s.record(); r != "" {
						t.Errorf("N=%d, %d deaf: node %d has the record %q; it did %v", n, deaf, i, r, s.order())
					}
				}
			})
		}
	}
}

// Where an answer was lost, the next was undone and another has the key by now, nobody
// can say that it was not transferred.
func TestTransferUndoneAndTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := servers(t, 3)
		e := newEngine(t, nodes)
		lease := acquired(t, e, "mine")
		rest()
		for _, s := range nodes[1:] {
			s.put("theirs", 0)
		}
		nodes[0].set(func(s *server) { s.deaf = true })
		done := make(chan []vote.Answer)
		go func() {
			_, answers, _ := transferOf(lease, requestOf("next"))
			done <- answers
		}()
		for nodes[0].record() != "next" {
			time.Sleep(time.Millisecond / 4)
		}
		nodes[0].set(func(s *server) { s.deaf = false })
		for nodes[0].record() != "" {
			time.Sleep(time.Millisecond / 4)
		}
		nodes[0].put("theirs", 0)
		if answers := <-done; answers[0].Verdict != vote.Unknown {
			t.Errorf("the answers are %v", answers)
		}
		rest()
	})
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
					if r := s.record(); r != "next" {
						t.Errorf("extending %t, back %d: node %d has the record %q; it did %v", extending, back, i, r, s.order())
					}
				}
				next.Release()
				rest()
				for i, s := range nodes {
					if r := s.record(); r != "" {
						t.Errorf("extending %t, back %d: node %d has the record %q; it did %v", extending, back, i, r, s.order())
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
		for _, id := range records(nodes) {
			if id != "" {
				t.Errorf("left: %v", records(nodes))
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
