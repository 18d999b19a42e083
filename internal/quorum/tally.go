package quorum

import "github.com/redlatch/redlatch/internal/ballot"

// tally counts the votes of one acquisition, one seat a node.
//
// A lock is held when a quorum stores the attempt's token, the largest counter
// that the granting nodes gave, while each still holds the attempt's record. Nodes
// that gave less are asked to confirm it, in a second round that is only needed
// when nodes disagree. Votes belong to seats, so a repeated answer is one vote.
type tally struct {
	need  int
	seats []seatVote
	// token is fixed once a quorum has granted without agreeing. Before, it is
	// the largest counter granted so far.
	token uint64
	fixed bool
	// refused is how many nodes answered with what waiting does not cure.
	refused int
}

type seatVote struct {
	state   voteState
	granted uint64
}

type voteState uint8

const (
	pending    voteState = iota // asked, no answer yet
	granted                     // has the record, under a counter that may not be the token
	confirming                  // asked to store the token
	counted                     // stores the token: it is in C
	against                     // cannot be counted any more
)

func newTally(nodes int) *tally {
	return &tally{need: Majority(nodes), seats: make([]seatVote, nodes)}
}

// Majority is the quorum of n configured nodes: more than half, so that any two
// meet.
func Majority(n int) int { return n/2 + 1 }

// acquired takes in node i's answer to the acquire step.
func (t *tally) acquired(i int, a ballot.Answer) {
	seat := &t.seats[i]
	if seat.state != pending {
		return
	}
	if a.Verdict != ballot.Granted {
		seat.state = against
		if a.Verdict == ballot.Refused {
			t.refused++
		}
		return
	}
	seat.state, seat.granted = granted, a.Token
	if !t.fixed {
		t.token = max(t.token, a.Token)
	}
	t.settle()
}

// settle sorts the granted seats into those that count, those to confirm and,
// where the counter is past the token, those that never can.
func (t *tally) settle() {
	have, agree := 0, 0
	for _, seat := range t.seats {
		if seat.state == granted {
			have++
			if seat.granted == t.token {
				agree++
			}
		}
	}
	if !t.fixed && have < t.need {
		return
	}
	t.fixed = true
	for i := range t.seats {
		seat := &t.seats[i]
		switch {
		case seat.state != granted:
		case seat.granted == t.token:
			seat.state = counted
		case seat.granted > t.token:
			seat.state = against
		}
	}
}

// confirmations returns the seats that must now be asked to store the token. It
// is empty while the lock is held without them, and when it cannot be.
func (t *tally) confirmations() []int {
	if !t.fixed || t.held() || t.failed() {
		return nil
	}
	var ask []int
	for i := range t.seats {
		if t.seats[i].state == granted {
			t.seats[i].state = confirming
			ask = append(ask, i)
		}
	}
	return ask
}

// confirmed takes in node i's answer to the confirm step.
func (t *tally) confirmed(i int, a ballot.Answer) {
	if t.seats[i].state != confirming {
		return
	}
	t.seats[i].state = against
	if a.Verdict == ballot.Granted {
		t.seats[i].state = counted
	}
}

func (t *tally) count(states ...voteState) int {
	n := 0
	for _, seat := range t.seats {
		for _, state := range states {
			if seat.state == state {
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
	spare := len(t.seats) - t.need
	mixed := t.refused > 0 && t.refused <= spare && t.refused+t.count(pending) > spare
	return t.failed() && !mixed
}
