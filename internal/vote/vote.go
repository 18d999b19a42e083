// Package vote has the words that the vote and a voting node share: what is
// asked of a node, and what it may answer.
package vote

import (
	"fmt"
	"time"
)

// LongestAttempt bounds the time from an attempt's start to the last answer that it uses: one
// that is decided later has failed. The quarantine rests on it, as the counter that a node
// is asked to confirm is at most this old.
const LongestAttempt = 2 * time.Second

// Verdict is what one node's answer amounts to.
type Verdict uint8

// The verdicts. Only Granted counts for a lock.
const (
	// Unknown: the command was sent and no reply came. The node may hold our
	// record or not.
	Unknown Verdict = iota
	// NotSent: the command never left this process.
	NotSent
	// Granted: the node did what it was asked.
	Granted
	// Held: the name is held by another holder on that node.
	Held
	// NotOurs: there was no record of this holder to extend, confirm or
	// release.
	NotOurs
	// NotAdmitted: the node may have forgotten locks it gave away, and does
	// not vote.
	NotAdmitted
	// Refused: the server answered with an error that waiting does not cure.
	Refused
	// NotReplicated: the node did what it was asked, and too few of its replicas
	// have acknowledged it. The node may hold our record.
	NotReplicated
	// Unavailable: the server answered that it cannot do this now, and waiting may
	// cure it. The node holds no record of ours because of it.
	Unavailable
)

var verdicts = [...]string{"no reply", "not sent", "granted", "held by another", "not ours", "not admitted", "refused", "not replicated", "unavailable"}

func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Answer is one node's answer to one step.
type Answer struct {
	Verdict Verdict
	// Transferred: of an acquisition that a holder handed over, the node had that
	// holder's record and replaced it.
	Transferred bool
	// Waiting: others may stand in a line for the lock on this node. Of a release,
	// one of them was called.
	Waiting bool
	// Token is the counter the node granted under.
	Token uint64
	// Holder is the holder id found on the node, of Held.
	Holder string
	// Left is how long the node keeps the other's record (Held; negative when
	// it has no expiry), or how long until it can be admitted (NotAdmitted;
	// zero when not known).
	Left time.Duration
	// Err says more about every verdict but Granted and Held.
	Err error
}

// MayHold reports whether the node may hold our record after a step that it
// answered so.
func (a Answer) MayHold() bool {
	return a.Verdict == Granted || a.Verdict == Unknown || a.Verdict == NotReplicated
}

// Called reports that the node keeps the free record for a waiter that it has
// called.
func (a Answer) Called() bool { return a.Verdict == Held && a.Holder == "" }

// Claim is what an attempt asks for.
type Claim struct {
	// Record is the lock's key, Counter the key of its fence counter, and Next
	// the key that says who was called from the line for it.
	Record, Counter, Next string
	// ID is this attempt's holder id: fresh for every attempt, or a late
	// release of an earlier one could match a later one.
	ID string
	// TTL is how long a node keeps the record.
	TTL time.Duration
	// Proposed is the client's wall clock in microseconds when the attempt
	// started, from which a node that remembers no larger token takes its
	// counter.
	Proposed uint64
	// More is how many counters besides one the attempt wants, all in a row: it is granted
	// under the last of them.
	More uint64
	// Token is the attempt's fencing token, once it is known.
	Token uint64
	// From is the holder who hands its records over to this attempt, if any.
	From string
	// Place is where the attempt stands in the line, if it does; an attempt
	// without a place leaves the record to a waiter that was called, unless it
	// may push in.
	Place  Place
	PushIn bool
	// Reused: the ID is a caller's own and may have been used before. A record
	// under it is then in the way like any other.
	Reused bool
	// Transfer, of a release: whoever the node calls may take the holder's records on
	// the other nodes over.
	Transfer bool
	// Queued, of a release: others were in line for the record on the node.
	Queued bool
}

// Place is a waiter's place in the line for a record.
type Place struct {
	// Waiter is who stands there; one whose name begins with a dash hears no
	// messages.
	Waiter string
	// Ticket orders the line; 0 for a new one, at its end.
	Ticket uint64
	// Voter is the index of the node that keeps the line.
	Voter int
}

// Call is a node's message to a waiter that the record is its to take.
type Call struct {
	Waiter, Record string
	// From is the holder who leaves its records on other nodes to the waiter, if
	// any.
	From string
}

// Standing is a node's answer to one who stands in the line: Held, or why it
// keeps no line. Left is the remaining time of the record, or when the record is
// free of the one who was called to take it.
type Standing struct {
	Answer
	Place Place
	// Ahead is how many come first. With none, a free record is the waiter's to
	// take.
	Ahead int
	// Hears: the waiter will be called. Watched: it will be told when the record
	// changes.
	Hears, Watched bool
	// From is the holder who leaves its records on other nodes to the one who is
	// called, if any.
	From string
}

// Free reports that there is no record.
func (s Standing) Free() bool { return s.Called() }
