// Package ballot has the words that the vote and a voting node share: what is
// asked of a node, and what it may answer.
package ballot

import (
	"fmt"
	"time"
)

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
)

var verdicts = [...]string{"no reply", "not sent", "granted", "held by another", "not ours", "not admitted", "refused", "not replicated"}

func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Answer is one node's answer to one step.
type Answer struct {
	Verdict Verdict
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

// Claim is what an attempt asks for.
type Claim struct {
	// Record is the lock's key, and Counter the key of its fence counter.
	Record, Counter string
	// ID is this attempt's holder id: fresh for every attempt, or a late
	// release of an earlier one could match a later one.
	ID string
	// TTL is how long a node keeps the record.
	TTL time.Duration
	// Proposed is the client's wall clock in microseconds when the attempt
	// started, from which a node that remembers no larger token takes its
	// counter.
	Proposed uint64
	// Token is the attempt's fencing token, once it is known.
	Token uint64
}
