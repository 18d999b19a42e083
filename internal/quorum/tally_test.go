package quorum

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redlatch/redlatch/internal/ballot"
)

func yes(counter uint64) ballot.Answer {
	return ballot.Answer{Verdict: ballot.Granted, Token: counter}
}

var no = ballot.Answer{Verdict: ballot.Held, Holder: theirs}

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
		answers []ballot.Answer // of nodes 0, 1, …
		decided int             // number of answers it takes
		held    bool
	}{
		{"one says yes", 1, []ballot.Answer{yes(7)}, 1, true},
		{"one says no", 1, []ballot.Answer{no}, 1, false},
		{"two of two", 2, []ballot.Answer{yes(7), yes(7)}, 2, true},
		{"one of two is no quorum", 2, []ballot.Answer{yes(7), no}, 2, false},
		{"one no of two is enough", 2, []ballot.Answer{no, yes(7)}, 1, false},
		{"two of three, third not waited for", 3, []ballot.Answer{yes(7), yes(7), no}, 2, true},
		{"two no of three", 3, []ballot.Answer{no, no, yes(7)}, 2, false},
		{"two-two split of four ends", 4, []ballot.Answer{yes(7), no, yes(7), no}, 4, false},
		{"three of four", 4, []ballot.Answer{yes(7), no, yes(7), yes(7)}, 4, true},
		{"two no of four", 4, []ballot.Answer{no, no, yes(7), yes(7)}, 2, false},
		{"three of five", 5, []ballot.Answer{yes(7), no, yes(7), no, yes(7)}, 5, true},
		{"three no of five", 5, []ballot.Answer{no, yes(7), no, yes(7), no}, 5, false},
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
	for v := ballot.Unknown; v <= ballot.Refused; v++ {
		tally := newTally(1)
		tally.acquired(0, ballot.Answer{Verdict: v, Token: 7})
		if granted := v == ballot.Granted; tally.held() != granted || tally.failed() == granted {
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

// Nodes whose counters disagree are asked to confirm the largest, once; it is
// held when a quorum stores it.
func TestTallyAsksForConfirmation(t *testing.T) {
	t.Parallel()
	tally := newTally(3)
	tally.acquired(0, yes(100))
	if ask := tally.confirmations(); len(ask) > 0 {
		t.Fatalf("%v were asked before a quorum had granted", ask)
	}
	tally.acquired(1, yes(5))
	if tally.held() || tally.failed() {
		t.Fatal("decided while the quorum disagrees")
	}
	if ask := tally.confirmations(); !slices.Equal(ask, []int{1}) || tally.token != 100 {
		t.Fatalf("asked %v to confirm %d, want node 1 and 100", ask, tally.token)
	}
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
	for v := ballot.Unknown; v <= ballot.Refused; v++ {
		if v == ballot.Granted {
			continue
		}
		tally := newTally(3)
		tally.acquired(0, yes(100))
		tally.acquired(1, yes(5))
		tally.confirmations()
		tally.confirmed(1, ballot.Answer{Verdict: v})
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
			tally := newTally(3)
			tally.acquired(0, yes(100))
			tally.acquired(1, yes(5))
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
	seat    int
	confirm bool
	answer  ballot.Answer
}

// Every assignment of answers to nodes, in every order, with every outcome of
// the second round: the outcome is never both, ends up one, and held means that
// a quorum of nodes stores the token, which is the largest of the counters of
// the quorum that granted first.
func TestTallyInEveryOrder(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			options := []ballot.Answer{no, yes(1), yes(2), yes(3)}
			if n > 3 {
				options = options[:3]
			}
			answers := make([]ballot.Answer, n)
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
						runs++
						playTally(t, answers, order, outcome, nil)
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
	rng := rand.New(rand.NewPCG(seed(t), 0))
	for range 10_000 {
		answers := make([]ballot.Answer, 5)
		for i := range answers {
			answers[i] = yes(uint64(1 + rng.IntN(4)))
			if rng.IntN(4) == 0 {
				answers[i] = no
			}
		}
		playTally(t, answers, rng.Perm(5), rng.IntN(1<<5), rng)
		if t.Failed() {
			return
		}
	}
}

// playTally delivers the answers in that order, and each confirmation right
// after it was asked for or, with rng, at some later time. It checks what must
// hold at every step.
func playTally(t *testing.T, answers []ballot.Answer, order []int, outcome int, rng *rand.Rand) {
	t.Helper()
	n, need := len(answers), len(answers)/2+1
	tally := newTally(n)
	stored := make([]uint64, n) // what each node has stored for us
	asked := make([]bool, n)
	var largest uint64
	granted := 0
	var queue []event
	for _, i := range order {
		queue = append(queue, event{seat: i, answer: answers[i]})
	}
	where := func() string {
		return fmt.Sprintf("answers %v in order %v, confirming %b", answers, order, outcome)
	}
	wasHeld := false
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if rng != nil && rng.IntN(8) == 0 {
			queue = append(queue, e) // it comes twice
		}
		if e.confirm {
			tally.confirmed(e.seat, e.answer)
		} else {
			if e.answer.Verdict == ballot.Granted && stored[e.seat] == 0 {
				stored[e.seat] = e.answer.Token
				if granted++; granted <= need {
					largest = max(largest, e.answer.Token)
				}
			}
			tally.acquired(e.seat, e.answer)
		}
		for _, i := range tally.confirmations() {
			if asked[i] || stored[i] >= tally.token {
				t.Errorf("%s: node %d was asked to confirm %d, has %d, asked before: %t", where(), i, tally.token, stored[i], asked[i])
			}
			asked[i] = true
			answer := ballot.Answer{Verdict: ballot.NotOurs}
			if outcome>>i&1 == 1 {
				answer = yes(1)
				stored[i] = tally.token
			}
			confirmation := event{seat: i, confirm: true, answer: answer}
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
			if count < need || tally.token != largest {
				t.Errorf("%s: held with %d, stored on %d nodes; the quorum's largest is %d", where(), tally.token, count, largest)
			}
		}
	}
	if tally.held() == tally.failed() {
		t.Errorf("%s: held %t and failed %t in the end", where(), tally.held(), tally.failed())
	}
	// It fails only where it must: fewer than a quorum can store the token.
	possible := 0
	for i, a := range answers {
		if a.Verdict == ballot.Granted && (a.Token == tally.token || a.Token < tally.token && outcome>>i&1 == 1) {
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
