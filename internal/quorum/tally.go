package quorum

import "github.com/redlatch/redlatch/internal/vote"

// tally counts the votes of one acquisition, one node a node.
//
// A lock is held when a quorum C of nodes has stored the attempt's token T, each
// while it held the attempt's key without a break since its grant. A grant
// stores its counter, so a quorum that granted under one counter has stored T as
// it is. Where none does, T is the largest counter granted, and nodes that gave
// less are asked to confirm it, in a second round. Votes belong to nodes, so a
// repeated answer is one vote.
//
// T need not be the largest counter granted. Of two attempts that held, take a
// node in both of their C. Their spans there, from grant to storing, do not
// overlap; when the later one was granted the node's counter was the earlier T at
// least, its answer was more, and its own T is no less than that answer. Nothing
// is said of nodes outside C: one that granted under more than T does not count,
// for what it gave before may be as large as T; but its key keeps others
// out, and counts as any when the lock is extended. No step takes its counter
// back to T: extend and release store what is larger, repair refuses.
type tally struct {
	need  int
	nodes []nodeVote
	// token is T once fixed is true: a quorum agreed on it or, where none did,
	// fix was called.
	token uint64
	fixed bool
	// refused is how many nodes answered with what waiting does not cure.
	refused int
}

type nodeVote struct {
	state   voteState
	granted uint64
}

type voteState uint8

const (
	pending    voteState = iota // asked, no answer yet
	granted                     // has the key, under a counter that may not be the token
	confirming                  // asked to store the token
	counted                     // stores the token: it is in C
	against                     // cannot be counted any more
)

func newTally(nodes int) *tally {
	// rule: configured-nodes
	return &tally{need: Majority(nodes), nodes: make([]nodeVote, nodes)}
}

// rule: majority

// Majority is the quorum of n configured nodes: more than half, so that any two
// meet.
func Majority(n int) int { return n/2 + 1 }

// acquired takes in node i's answer to the acquire step.
func (t *tally) acquired(i int, a vote.Answer) {
	node := &t.nodes[i]
	// rule: one-vote-a-node
	if node.state != pending {
		return
	}
	node.state = against
	switch a.Verdict {
	case vote.Granted:
		node.state, node.granted = granted, a.Token
	case vote.Refused:
		t.refused++
	}
	counter, nodes := t.agreement()
	switch {
	case t.fixed:
	case nodes >= t.need:
		t.token, t.fixed = counter, true
	case nodes+t.count(pending) < t.need:
		t.fix() // no answer still to come can make a quorum agree
	}
	t.settle()
}

// agreement returns the counter that most nodes granted under, and how many they
// are.
func (t *tally) agreement() (counter uint64, nodes int) {
	for _, one := range t.nodes {
		if one.state != granted {
			continue
		}
		same := 0
		for _, other := range t.nodes {
			if other.state == granted && other.granted == one.granted {
				same++
			}
		}
		if same > nodes {
			counter, nodes = one.granted, same
		}
	}
	return counter, nodes
}

// split reports that a quorum has granted and does not agree on a counter, which
// it may yet, with the answers still to come.
func (t *tally) split() bool { return !t.fixed && t.count(granted) >= t.need }

// fix ends a split: the token is the largest counter granted, which all that have
// granted can store.
func (t *tally) fix() {
	if !t.split() {
		return
	}
	t.fixed = true
	for _, node := range t.nodes {
		if node.state == granted {
			t.token = max(t.token, node.granted)
		}
	}
	t.settle()
}

// settle sorts the granted nodes, once the token is fixed, into those that count,
// those to confirm and, where the counter is past the token, those that never can.
func (t *tally) settle() {
	if !t.fixed {
		return
	}
	for i := range t.nodes {
		node := &t.nodes[i]
		switch {
		case node.state != granted:
		// rule: token-one-counter
		case node.granted == t.token:
			node.state = counted
		case node.granted > t.token:
			node.state = against
		}
	}
}

// confirmations returns the nodes that must now be asked to store the token. It
// is empty while the lock is held without them, and when it cannot be.
func (t *tally) confirmations() []int {
	// rule: token-stored
	if !t.fixed || t.held() || t.failed() {
		return nil
	}
	var ask []int
	for i := range t.nodes {
		if t.nodes[i].state == granted {
			t.nodes[i].state = confirming
			ask = append(ask, i)
		}
	}
	return ask
}

// confirmed takes in node i's answer to the confirm step.
func (t *tally) confirmed(i int, a vote.Answer) {
	if t.nodes[i].state != confirming {
		return
	}
	t.nodes[i].state = against
	if a.Verdict == vote.Granted {
		t.nodes[i].state = counted
	}
}

func (t *tally) count(states ...voteState) int {
	n := 0
	for _, node := range t.nodes {
		for _, state := range states {
			if node.state == state {
				n++
			}
		}
	}
	return n
}

// held reports that a quorum stores the token.
func (t *tally) held() bool { return t.count(counted) >= t.need }

// failed reports that no answer still to come can make it held.
func (t *tally) failed() bool {
	return t.count(counted, pending, granted, confirming) < t.need
}

// decided reports that no answer still to come matters: the lock is held, or
// cannot be. In the second case, and if a node refused, answers matter while they
// may be the refusals that make a quorum impossible: a caller must not wait for
// another to let go where that does not help. Attempts that no node refused end
// as soon as they have failed.
func (t *tally) decided() bool {
	if t.held() {
		return true
	}
	spare := len(t.nodes) - t.need
	mixed := t.refused > 0 && t.refused <= spare && t.refused+t.count(pending) > spare
	return t.failed() && !mixed
}
