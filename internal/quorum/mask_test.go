package quorum

import (
	"cmp"
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

// condition is what a node is in when an attempt meets it.
type condition struct {
	name string
	// set brings a server there.
	set func(s *server)
	// yes: it is part of a quorum. after is when its answer is known; the
	// engine gives up at stepTime.
	yes     bool
	after   time.Duration
	verdict vote.Verdict
}

// theirs is the key of a holder that has nothing to do with the test.
const theirs = "theirs"

func conditions() []condition {
	taken := func(s *server) { s.id = theirs }
	return []condition{
		{name: "up", set: func(*server) {}, yes: true, after: 2 * time.Millisecond, verdict: vote.Granted},
		{name: "taken", set: taken, after: 2 * time.Millisecond, verdict: vote.Held},
		{name: "refusing", set: func(s *server) { s.down = true }, verdict: vote.NotSent},
		{name: "hung", set: func(s *server) { s.lost = true }, after: stepTime, verdict: vote.Unknown},
		{name: "late", set: func(s *server) { s.there, s.back = 25*time.Millisecond, 35*time.Millisecond }, after: stepTime, verdict: vote.Unknown},
		{name: "overdue", set: func(s *server) { s.there, s.back = 70*time.Millisecond, time.Millisecond }, after: stepTime, verdict: vote.Unknown},
		{name: "slow", set: func(s *server) { s.there, s.back = 20*time.Millisecond, 15*time.Millisecond }, yes: true, after: 35 * time.Millisecond, verdict: vote.Granted},
		{name: "deaf", set: func(s *server) { s.deaf = true }, after: stepTime, verdict: vote.Unknown},
		{name: "erring", set: func(s *server) { s.refusal = &vote.Answer{Verdict: vote.Refused, Err: errSimulated} }, after: 2 * time.Millisecond, verdict: vote.Refused},
		{name: "not admitted", set: func(s *server) { s.refusal = &vote.Answer{Verdict: vote.NotAdmitted, Err: errSimulated} }, after: 2 * time.Millisecond, verdict: vote.NotAdmitted},
	}
}

// masks calls f with every way to put n nodes into the conditions.
func masks(n int, of []condition, f func(mask []condition)) {
	mask := make([]condition, n)
	var fill func(i int)
	fill = func(i int) {
		if i == n {
			f(mask)
			return
		}
		for _, c := range of {
			mask[i] = c
			fill(i + 1)
		}
	}
	fill(0)
}

// choices calls f with every choice of conditions for n nodes, whose places are
// drawn at random: to the vote one node is as good as another.
func choices(n int, of []condition, rng *rand.Rand, f func(mask []condition)) {
	var fill func(chosen []condition, from int)
	fill = func(chosen []condition, from int) {
		if len(chosen) == n {
			mask := make([]condition, n)
			for i, place := range rng.Perm(n) {
				mask[place] = chosen[i]
			}
			f(mask)
			return
		}
		for i := from; i < len(of); i++ {
			fill(append(chosen[:len(chosen):len(chosen)], of[i]), i)
		}
	}
	fill(nil, 0)
}

func maskName(mask []condition) string {
	names := make([]string, len(mask))
	for i, c := range mask {
		names[i] = c.name
	}
	return strings.Join(names, ",")
}

// decision says, from the mask alone, what the outcome must be and when it is
// certain. Answers that come at the same instant come in any order, which
// matters where half of the nodes refuse.
func decision(mask []condition) (held bool, at [2]time.Duration) {
	need := len(mask)/2 + 1
	if at, ok := nth(mask, need, true); ok {
		return true, [2]time.Duration{at, at}
	}
	return false, [2]time.Duration{failure(mask, -1), failure(mask, +1)}
}

// failure is when an attempt that finds no quorum ends: when a quorum cannot be
// any more, and it is known whether refusals alone, if there was one by then,
// see to that. Of answers at the same instant refusals come last if lead is 1.
func failure(mask []condition, lead int) time.Duration {
	answers := slices.Clone(mask)
	refuses := func(c condition) int {
		if c.verdict == vote.Refused {
			return lead
		}
		return 0
	}
	slices.SortFunc(answers, func(a, b condition) int {
		return cmp.Or(cmp.Compare(a.after, b.after), refuses(a)-refuses(b))
	})
	spare := (len(mask) - 1) / 2
	no, refused := 0, 0
	for i, c := range answers {
		if !c.yes {
			no++
		}
		if c.verdict == vote.Refused {
			refused++
		}
		left := len(answers) - i - 1
		if no > spare && (refused == 0 || refused > spare || refused+left <= spare) {
			return c.after
		}
	}
	return answers[len(answers)-1].after
}

// nth is when the n-th answer of one kind comes, if so many come.
func nth(mask []condition, n int, yes bool) (time.Duration, bool) {
	var times []time.Duration
	for _, c := range mask {
		if c.yes == yes {
			times = append(times, c.after)
		}
	}
	if len(times) < n {
		return 0, false
	}
	slices.Sort(times)
	return times[n-1], true
}

// settled is longer than any message of these tests is on its way.
const settled = 300 * time.Millisecond

// sweep runs one attempt, cut short after cut unless that is 0, against the
// masks that each calls its argument with, all in one bubble.
func sweep(t *testing.T, cut time.Duration, each func(f func(mask []condition))) {
	t.Helper()
	count := 0
	synctest.Test(t, func(t *testing.T) {
		each(func(mask []condition) {
			count++
			if !t.Failed() {
				attempt(t, mask, cut)
			}
		})
	})
	t.Logf("%d masks", count)
}

// attempt meets one mask with one attempt and its release.
func attempt(t *testing.T, mask []condition, cut time.Duration) {
	nodes := make([]*server, len(mask))
	for i, c := range mask {
		nodes[i] = newServer()
		defer nodes[i].close()
		c.set(nodes[i])
	}
	engine := New(voters(nodes), newBubbleClock(), stepTime)
	ctx := t.Context()
	wantHeld, wantAt := decision(mask)
	if cut > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cut)
		defer cancel()
		if cut < wantAt[0] {
			wantHeld = false
		}
		for i := range wantAt {
			wantAt[i] = min(wantAt[i], cut)
		}
	}
	request := vote.Acquire{Key: "x", ID: "mine", TTL: 10 * time.Second, Proposed: uint64(time.Now().UnixMicro())}

	start := time.Now()
	lease, answers := engine.Acquire(ctx, request)
	at := time.Since(start)
	switch name := maskName(mask); {
	case (lease != nil) != wantHeld:
		t.Errorf("%s, cut at %v: held is %t, want %t: %v", name, cut, lease != nil, wantHeld, answers)
	case at != wantAt[0] && at != wantAt[1]:
		t.Errorf("%s, cut at %v: decided after %v, want %v", name, cut, at, wantAt)
	case lease != nil && !lease.Until().Mono.Equal(start.Add(request.TTL-Drift(request.TTL))):
		t.Errorf("%s: valid for %v from the first send", name, lease.Until().Mono.Sub(start))
	}
	if lease == nil {
		checkAnswers(t, mask, answers, at)
	}

	if lease != nil {
		checkRelease(t, mask, nodes, lease)
	}
	// A hundred milliseconds later nothing of it is on a node that a message
	// reaches within that time; in the end, on none.
	time.Sleep(100 * time.Millisecond)
	checkGone(t, mask, nodes, cut)
	time.Sleep(settled)
	checkGone(t, mask, nodes, cut)
	engine.Close()
}

// checkRelease unlocks what was held, and checks when and with what answers.
func checkRelease(t *testing.T, mask []condition, nodes []*server, lease *Lease) {
	t.Helper()
	if lease.Token() == 0 {
		t.Errorf("%s: held without a token", maskName(mask))
	}
	time.Sleep(settled) // the stragglers come to rest
	for i, c := range mask {
		if has := nodes[i].holder() == "mine"; has != (c.yes || c.name == "late" || c.name == "overdue" || c.name == "deaf") {
			t.Errorf("%s: node %d has our key: %t", maskName(mask), i, has)
		}
	}
	start := time.Now()
	answers, ok := lease.Release()
	var deletions []time.Duration
	for _, c := range mask {
		if c.yes {
			deletions = append(deletions, c.after)
		}
	}
	slices.Sort(deletions)
	want := deletions[Majority(len(mask))-1]
	deleted := 0
	for _, a := range answers {
		if a.Verdict == vote.Granted {
			deleted++
		}
	}
	if !ok || deleted < Majority(len(mask)) || time.Since(start) != want {
		t.Errorf("%s: released %t, %d deleted, after %v, want %v", maskName(mask), ok, deleted, time.Since(start), want)
	}
	if _, ok := lease.Release(); ok {
		t.Errorf("%s: released twice", maskName(mask))
	}
}

// checkAnswers compares the answers with what was known at that time.
func checkAnswers(t *testing.T, mask []condition, answers []vote.Answer, at time.Duration) {
	t.Helper()
	if len(answers) != len(mask) {
		t.Errorf("%s: %d answers", maskName(mask), len(answers))
		return
	}
	for i, c := range mask {
		a := answers[i]
		// With a single node it is its own answer that ends with the caller.
		unanswered := a.Verdict == vote.Unknown && (a.Err == nil || len(mask) == 1)
		switch {
		case c.after < at && a.Verdict != c.verdict,
			c.after == at && a.Verdict != c.verdict && !unanswered,
			c.after > at && !unanswered:
			t.Errorf("%s: node %d (%s) answered %v (%v) at %v", maskName(mask), i, c.name, a.Verdict, a.Err, at)
		case a.Verdict == vote.Held && a.Holder != theirs:
			t.Errorf("%s: node %d is held by %q", maskName(mask), i, a.Holder)
		}
	}
}

// checkGone expects nothing of ours on any node, and what is another's in its
// place.
func checkGone(t *testing.T, mask []condition, nodes []*server, cut time.Duration) {
	t.Helper()
	for i, c := range mask {
		want := ""
		if c.name == "taken" {
			want = theirs
		}
		if got := nodes[i].holder(); got != want {
			t.Errorf("%s, cut at %v: node %d (%s) has the key %q, want %q; it did %v", maskName(mask), cut, i, c.name, got, want, nodes[i].order())
		}
	}
}

func only(names ...string) []condition {
	var some []condition
	for _, c := range conditions() {
		if slices.Contains(names, c.name) {
			some = append(some, c)
		}
	}
	return some
}

// mostNodes is the largest number of nodes of which every mask is tried.
func mostNodes() int {
	if testing.Short() {
		return 4
	}
	return 5
}

// Every mask of conditions: the right outcome, at the first moment that it is
// certain, and nothing left behind.
func TestEveryMask(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for n := 1; n <= mostNodes(); n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			sweep(t, 0, func(f func([]condition)) {
				if n <= 3 {
					masks(n, conditions(), f)
				} else {
					choices(n, conditions(), rng, f)
				}
			})
		})
	}
}

// The same when the caller goes at any stage: before the first answer, between
// the quick ones and the slow, and before the slowest.
func TestEveryMaskWithItsCallerGone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	cuts, most := []time.Duration{500 * time.Microsecond, 1500 * time.Microsecond, 17 * time.Millisecond, 41 * time.Millisecond}, 4
	if testing.Short() {
		cuts, most = cuts[1:2], 3
	}
	for _, cut := range cuts {
		for n := 1; n <= most; n++ {
			t.Run(fmt.Sprintf("N=%d,cut=%v", n, cut), func(t *testing.T) {
				sweep(t, cut, func(f func([]condition)) { choices(n, conditions(), rng, f) })
			})
		}
		t.Run(fmt.Sprintf("N=5,cut=%v", cut), func(t *testing.T) {
			sweep(t, cut, func(f func([]condition)) {
				choices(5, only("up", "taken", "late", "overdue", "refusing"), rng, f)
			})
		})
	}
}
