package quorum

import "github.com/redlatch/redlatch/internal/vote"

// tally counts the votes of one acquisition, one vote for each node.
//
// A lock is held when each node of a quorum C has stored the attempt's token T, while it held the
// attempt's key without a break since its grant. A grant stores its counter, so a quorum that
// granted under one counter has stored T already. Where no quorum did, T is the largest counter
// granted, and nodes that granted under less are asked to confirm it, in a second round. Votes
// belong to nodes, so a repeated answer is one vote.
//
// T need not be the largest counter granted. Take two attempts that held, and a node in the C of
// both. Their spans there, from grant to storing, do not overlap. When the later one was granted,
// the node's counter was at least the earlier T; the node's answer was more than that, and the
// later T is no less than that answer. Nothing follows for nodes outside C: one that granted under
// more than T does not count, because what it gave before may be as large as T. But its key keeps
// others out, and counts like any other when the lock is extended. No step takes a node's counter
// back to T: extend, release and repair store only what is larger.
type tally struct {
	need  int
	nodes []nodeVote
	// token is T once fixed is true: after a quorum agreed on it or, where none did, after fix was
	// called.
	token uint64
	fixed bool
	// second: the second round has begun, in which nodes are asked to confirm.
	second bool
	// refused is how many nodes answered with an error that waiting does not cure.
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

// Majority returns the quorum of n configured nodes: more than half, so that any two quorums have a
// node in common.
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
		node.state, node.granted = granted, a.Counter
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

// agreement returns the counter that most nodes granted under, and how many nodes those are.
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

// split reports whether a quorum has granted but does not agree on a counter. The answers still to
// come may yet make one agree.
func (t *tally) split() bool { return !t.fixed && t.count(granted) >= t.need }

// fix ends a split: the token becomes the largest counter granted, which all nodes that have
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

// settle sorts the granted nodes, once the token is fixed, into those that count, those to be asked
// to confirm and, where the node's counter is past the token, those that can never count.
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

// confirmations returns the nodes that must now be asked to store the token, and counts them as asked.
// There are none while the lock is held without them, or when it cannot be held.
func (t *tally) confirmations() []int {
	// rule: token-stored
	if !t.fixed || t.held() || t.failed() {
		return nil
	}
	var ask []int
	for i := range t.nodes {
		if t.nodes[i].state == granted {
			t.nodes[i].state, t.second = confirming, true
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

// held reports whether a quorum stores the token.
func (t *tally) held() bool { return t.count(counted) >= t.need }

// failed reports whether no answer still to come can make the lock held.
func (t *tally) failed() bool {
	return t.count(counted, pending, granted, confirming) < t.need
}

// decided reports whether no answer still to come matters. The lock is held, or it cannot be and the
// reason is known.
func (t *tally) decided() bool { return t.held() || t.failed() && !t.mayBeRefused() }

// mayBeRefused reports whether a node has refused, and answers still to come may be the refusals that
// by themselves make a quorum impossible: a caller must not wait for a holder to let go where that
// does not help.
func (t *tally) mayBeRefused() bool {
	spare := len(t.nodes) - t.need // if no more than these refuse, the others are a quorum
	return 0 < t.refused && t.refused <= spare && spare < t.refused+t.count(pending)
}
