package quorum

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/vote"
)

func yes(counter uint64) vote.Answer {
	return vote.Answer{Verdict: vote.Granted, Counter: counter}
}

var no = vote.Answer{Verdict: vote.Held, Holder: theirs}

// The quorum is of the configured nodes, and any two of them meet.
func TestMajority(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		need := Majority(n)
		if 2*need <= n {
			t.Errorf("two quorums of %d need not meet in %d nodes", need, n)
		}
		if 2*(need-1) > n {
			t.Errorf("%d of %d nodes is more than a majority", need, n)
		}
	}
}

// An outcome is certain at the first answer that leaves no other.
func TestTallyDecidesAsSoonAsItCan(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		nodes   int
		answers []vote.Answer // of nodes 0, 1, …
		decided int           // number of answers it takes
		held    bool
	}{
		{"one says yes", 1, []vote.Answer{yes(7)}, 1, true},
		{"one says no", 1, []vote.Answer{no}, 1, false},
		{"two of two", 2, []vote.Answer{yes(7), yes(7)}, 2, true},
		{"one of two is no quorum", 2, []vote.Answer{yes(7), no}, 2, false},
		{"one no of two is enough", 2, []vote.Answer{no, yes(7)}, 1, false},
		{"two of three, third not waited for", 3, []vote.Answer{yes(7), yes(7), no}, 2, true},
		{"two no of three", 3, []vote.Answer{no, no, yes(7)}, 2, false},
		{"two-two split of four ends", 4, []vote.Answer{yes(7), no, yes(7), no}, 4, false},
		{"three of four", 4, []vote.Answer{yes(7), no, yes(7), yes(7)}, 4, true},
		{"two no of four", 4, []vote.Answer{no, no, yes(7), yes(7)}, 2, false},
		{"three of five", 5, []vote.Answer{yes(7), no, yes(7), no, yes(7)}, 5, true},
		{"three no of five", 5, []vote.Answer{no, yes(7), no, yes(7), no}, 5, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tally := newTally(c.nodes)
			for i, a := range c.answers {
				if tally.held() || tally.failed() {
					t.Fatalf("decided after %d answers, want %d", i, c.decided)
				}
				tally.acquired(i, a)
				if i+1 == c.decided {
					break
				}
			}
			if tally.held() != c.held || tally.failed() == c.held {
				t.Fatalf("held %t, failed %t; want held %t", tally.held(), tally.failed(), c.held)
			}
		})
	}
}

// Only a grant is a vote.
func TestTallyCountsGrantsOnly(t *testing.T) {
	t.Parallel()
	for v := vote.Unknown; v <= vote.Refused; v++ {
		tally := newTally(1)
		tally.acquired(0, vote.Answer{Verdict: v, Counter: 7})
		if granted := v == vote.Granted; tally.held() != granted || tally.failed() == granted {
			t.Errorf("%v: held %t, failed %t", v, tally.held(), tally.failed())
		}
	}
}

// A node has one vote, whatever it repeats or takes back.
func TestTallyCountsNodesNotAnswers(t *testing.T) {
	t.Parallel()
	tally := newTally(3)
	for range 5 {
		tally.acquired(0, yes(7))
	}
	if tally.held() || tally.failed() {
		t.Fatal("one node's repeated answer decided")
	}
	tally.acquired(0, no)
	tally.acquired(1, yes(7))
	if !tally.held() {
		t.Fatal("two of three granted and it is not held")
	}

	against := newTally(3)
	against.acquired(0, no)
	against.acquired(0, no)
	against.acquired(0, yes(7))
	if against.failed() || against.held() {
		t.Fatal("one node's repeated answer decided")
	}
	against.acquired(1, no)
	if !against.failed() {
		t.Fatal("two of three said no and it is open")
	}
}

// A quorum that agrees on a counter, whichever it is, holds at once; one that
// cannot agree any more asks for confirmation of the largest; else answers to
// come are waited for.
func TestTallySettles(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		nodes   int
		answers []vote.Answer // of nodes 0, 1, …
		held    bool
		split   bool
		token   uint64
		ask     []int
	}{
		{name: "agreed", nodes: 3, answers: []vote.Answer{yes(7), yes(7)}, held: true, token: 7},
		{name: "split", nodes: 3, answers: []vote.Answer{yes(8), yes(7)}, split: true},
		{name: "agreed on the smaller", nodes: 3, answers: []vote.Answer{yes(8), yes(7), yes(7)}, held: true, token: 7},
		{name: "agreed on the larger", nodes: 3, answers: []vote.Answer{yes(7), yes(8), yes(8)}, held: true, token: 8},
		{name: "three counters", nodes: 3, answers: []vote.Answer{yes(7), yes(9), yes(8)}, token: 9, ask: []int{0, 2}},
		{name: "the third is another's", nodes: 3, answers: []vote.Answer{yes(7), yes(8), no}, token: 8, ask: []int{0}},
		{name: "another's comes first", nodes: 3, answers: []vote.Answer{no, yes(8), yes(7)}, token: 8, ask: []int{2}},
		{name: "two nodes", nodes: 2, answers: []vote.Answer{yes(8), yes(7)}, token: 8, ask: []int{1}},
		{name: "no quorum yet", nodes: 5, answers: []vote.Answer{yes(8), yes(7)}},
		{name: "five, one differs", nodes: 5, answers: []vote.Answer{yes(8), yes(7), yes(7)}, split: true},
		{name: "five, one differs, one more agrees", nodes: 5, answers: []vote.Answer{yes(8), yes(7), yes(7), yes(7)}, held: true, token: 7},
		{name: "five, two and two", nodes: 5, answers: []vote.Answer{yes(8), yes(7), yes(7), yes(8)}, split: true},
		{name: "five, three counters", nodes: 5, answers: []vote.Answer{yes(8), yes(7), yes(9)}, split: true},
		{name: "five, three counters and another's", nodes: 5, answers: []vote.Answer{yes(8), yes(7), yes(9), no}, token: 9, ask: []int{0, 1}},
		{name: "five, two agree, two are another's", nodes: 5, answers: []vote.Answer{no, yes(7), no, yes(8), yes(7)}, token: 8, ask: []int{1, 4}},
		{name: "four, two and two", nodes: 4, answers: []vote.Answer{yes(7), yes(8), yes(8), yes(7)}, token: 8, ask: []int{0, 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tally := newTally(c.nodes)
			for i, a := range c.answers {
				if tally.held() || tally.fixed {
					t.Fatalf("settled after %d answers", i)
				}
				tally.acquired(i, a)
			}
			ask := tally.confirmations()
			if tally.held() != c.held || tally.split() != c.split || tally.token != c.token || !slices.Equal(ask, c.ask) {
				t.Fatalf("held %t, split %t, token %d, asks %v", tally.held(), tally.split(), tally.token, ask)
			}
		})
	}
}

// splitTally is one of three nodes of which two have granted, under 100 and 5,
// and are waited for no longer.
func splitTally() *tally {
	tally := newTally(3)
	tally.acquired(0, yes(100))
	tally.acquired(1, yes(5))
	tally.fix()
	return tally
}

// Nodes that are split are asked to confirm the largest counter, once, when the
// rest is waited for no longer; it is held when a quorum stores it.
func TestTallyAsksForConfirmation(t *testing.T) {
	t.Parallel()
	tally := newTally(3)
	tally.acquired(0, yes(100))
	tally.fix()
	if ask := tally.confirmations(); len(ask) > 0 || tally.fixed {
		t.Fatalf("%v were asked before a quorum had granted", ask)
	}
	tally.acquired(1, yes(5))
	if ask := tally.confirmations(); tally.held() || tally.failed() || len(ask) > 0 {
		t.Fatal("decided while the quorum is split")
	}
	tally.fix()
	if ask := tally.confirmations(); !slices.Equal(ask, []int{1}) || tally.token != 100 {
		t.Fatalf("asked %v to confirm %d, want node 1 and 100", ask, tally.token)
	}
	tally.fix()
	if ask := tally.confirmations(); len(ask) > 0 {
		t.Fatalf("%v were asked twice", ask)
	}
	tally.confirmed(1, yes(1))
	if !tally.held() || tally.token != 100 {
		t.Fatalf("held %t with %d", tally.held(), tally.token)
	}
}

func TestTallyFailsWhenAConfirmationDoes(t *testing.T) {
	t.Parallel()
	for v := vote.Unknown; v <= vote.Refused; v++ {
		if v == vote.Granted {
			continue
		}
		tally := splitTally()
		tally.confirmations()
		tally.confirmed(1, vote.Answer{Verdict: v})
		if tally.held() || tally.failed() {
			t.Fatalf("%v: decided while a node has not answered", v)
		}
		tally.acquired(2, no)
		if !tally.failed() || tally.held() {
			t.Fatalf("%v: not failed", v)
		}
	}
}

// Node 2 grants after the token was fixed by nodes 0 and 1.
func TestTallyTakesLateGrants(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name            string
		counter         uint64
		asked, possible bool
	}{
		{"under the token", 100, false, true},
		{"under less: it is asked to confirm", 6, true, true},
		{"under more: it can never store the token", 101, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tally := splitTally()
			tally.confirmations()
			tally.acquired(2, yes(c.counter))
			if tally.token != 100 {
				t.Fatalf("the token changed to %d", tally.token)
			}
			if ask := tally.confirmations(); slices.Contains(ask, 2) != c.asked {
				t.Fatalf("asked %v", ask)
			}
			tally.confirmed(2, yes(1))
			tally.confirmed(1, no)
			if tally.held() != c.possible || tally.failed() == c.possible {
				t.Fatalf("held %t, failed %t", tally.held(), tally.failed())
			}
		})
	}
}

// A confirmation from a node that was not asked for one is no vote.
func TestTallyIgnoresUnaskedConfirmations(t *testing.T) {
	t.Parallel()
	tally := newTally(3)
	tally.confirmed(0, yes(1))
	tally.confirmed(1, yes(1))
	if tally.held() || tally.failed() {
		t.Fatal("decided by confirmations of nothing")
	}
}

// event is one message that reaches a tally.
type event struct {
	node    int
	confirm bool
	answer  vote.Answer
}

// Every assignment of answers to nodes, in every order, with every moment at
// which patience ends and every outcome of the second round: the outcome is never
// both, ends up one, and held means that a quorum of nodes stores the token.
func TestTallyInEveryOrder(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			options := []vote.Answer{no, yes(1), yes(2), yes(3)}
			if n > 3 {
				options = options[:3]
			}
			answers := make([]vote.Answer, n)
			runs := 0
			var assign func(i int)
			assign = func(i int) {
				if i < n {
					for _, a := range options {
						answers[i] = a
						assign(i + 1)
					}
					return
				}
				orders(n, func(order []int) {
					for outcome := range 1 << n { // bit i: node i confirms
						for patience := range n + 1 {
							runs++
							playTally(t, answers, order, patience, outcome, nil)
						}
					}
				})
			}
			assign(0)
			t.Logf("%d runs", runs)
		})
	}
}

// The same with five nodes, drawn at random, with answers repeated.
func TestTallyAtRandom(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 10_000 {
		answers := make([]vote.Answer, 5)
		for i := range answers {
			answers[i] = yes(uint64(1 + rng.IntN(4)))
			if rng.IntN(4) == 0 {
				answers[i] = no
			}
		}
		playTally(t, answers, rng.Perm(5), rng.IntN(6), rng.IntN(1<<5), rng)
		if t.Failed() {
			return
		}
	}
}

// playTally delivers the answers in that order, and each confirmation right
// after it was asked for or, with rng, at some later time. Split nodes are waited
// for until as many answers have come as patience says. It checks what must
// hold at every step.
func playTally(t *testing.T, answers []vote.Answer, order []int, patience, outcome int, rng *rand.Rand) {
	t.Helper()
	n, need := len(answers), len(answers)/2+1
	tally := newTally(n)
	stored := make([]uint64, n) // what each node has stored for us
	asked, came := make([]bool, n), make([]bool, n)
	same := make(map[uint64]int) // how many granted under each counter
	granted, answered, needed := 0, 0, false
	var queue []event
	for _, i := range order {
		queue = append(queue, event{node: i, answer: answers[i]})
	}
	where := func() string {
		return fmt.Sprintf("answers %v in order %v, patience %d, confirming %b", answers, order, patience, outcome)
	}
	wasHeld := false
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if rng != nil && rng.IntN(8) == 0 {
			queue = append(queue, e) // it comes twice
		}
		if e.confirm {
			tally.confirmed(e.node, e.answer)
		} else {
			if !came[e.node] {
				came[e.node] = true
				answered++
				if e.answer.Verdict == vote.Granted {
					stored[e.node] = e.answer.Counter
					same[e.answer.Counter]++
					granted++
				}
			}
			tally.acquired(e.node, e.answer)
			if answered >= patience {
				tally.fix()
			}
		}
		ask := tally.confirmations()
		if len(ask) > 0 && !needed {
			needed = true
			most := 0
			for _, agree := range same {
				most = max(most, agree)
			}
			if most >= need || answered < patience && most+n-answered >= need {
				t.Errorf("%s: a second round after %d answers, of which %d agree", where(), answered, most)
			}
			if largest := slices.Max(stored); tally.token != largest {
				t.Errorf("%s: the second round is for %d, and %d was granted", where(), tally.token, largest)
			}
		}
		for _, i := range ask {
			if asked[i] || stored[i] >= tally.token {
				t.Errorf("%s: node %d was asked to confirm %d, has %d, asked before: %t", where(), i, tally.token, stored[i], asked[i])
			}
			asked[i] = true
			answer := vote.Answer{Verdict: vote.NotOurs}
			if outcome>>i&1 == 1 {
				answer = yes(1)
				stored[i] = tally.token
			}
			confirmation := event{node: i, confirm: true, answer: answer}
			if rng == nil {
				queue = append([]event{confirmation}, queue...)
			} else {
				queue = slices.Insert(queue, rng.IntN(len(queue)+1), confirmation)
			}
		}
		if tally.held() && tally.failed() {
			t.Errorf("%s: both held and failed", where())
		}
		if wasHeld && !tally.held() {
			t.Errorf("%s: held no longer", where())
		}
		if tally.held() && !wasHeld {
			wasHeld = true
			count := 0
			for _, s := range stored {
				if s == tally.token {
					count++
				}
			}
			if count < need || !needed && same[tally.token] < need {
				t.Errorf("%s: held with %d, stored on %d nodes, granted by %d", where(), tally.token, count, same[tally.token])
			}
		}
	}
	if tally.held() == tally.failed() {
		t.Errorf("%s: held %t and failed %t in the end", where(), tally.held(), tally.failed())
	}
	// It fails only where it must: fewer than a quorum can store the token.
	possible := 0
	for i, a := range answers {
		if a.Verdict == vote.Granted && (a.Counter == tally.token || a.Counter < tally.token && outcome>>i&1 == 1) {
			possible++
		}
	}
	if tally.failed() && granted >= need && possible >= need {
		t.Errorf("%s: failed, though %d nodes store or would store %d", where(), possible, tally.token)
	}
}

// orders calls f with every order of n nodes.
func orders(n int, f func([]int)) {
	order := make([]int, 0, n)
	var pick func()
	pick = func() {
		if len(order) == n {
			f(order)
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				pick()
				order = order[:len(order)-1]
			}
		}
	}
	pick()
}
