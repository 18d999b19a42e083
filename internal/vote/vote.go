package vote

import (
	"fmt"
	"strings"
	"time"
)

// rule: longest-attempt

// LongestAttempt bounds the time from an attempt's start to the last answer that it uses: an
// attempt that is decided later has failed. The quarantine rests on this bound, because the counter
// that a node is asked to confirm is at most this old.
const LongestAttempt = 2 * time.Second

// Verdict is what one node's answer amounts to.
type Verdict uint8

// The verdicts. Only Granted counts for a lock.
const (
	// Unknown: the command was sent and no reply came. The node may hold our
	// key or not.
	Unknown Verdict = iota
	// NotSent: the command never left this process.
	NotSent
	// Granted: the node did what it was asked.
	Granted
	// Held: the name is held by another holder on that node.
	Held
	// NotOurs: there was no key of this holder to extend, confirm or
	// release.
	NotOurs
	// NotAdmitted: the node may have forgotten locks it gave away, and does
	// not vote.
	NotAdmitted
	// Refused: the server answered with an error that waiting does not cure.
	Refused
	// NotReplicated: the node did what it was asked, and too few of its replicas
	// have acknowledged it. The node may hold our key.
	NotReplicated
	// Unavailable: the server answered that it cannot do this now, and waiting may cure that. The
	// step has left no key of ours on the node.
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
	// Transferred, in an answer to an acquire step with From, says that the node had that holder's
	// key and replaced it.
	Transferred bool
	// Waiting, in an answer to an acquire step: others may be in the wait queue for the lock on this
	// node. Woken, in an answer to a release that deleted the key: one of them was woken up.
	Waiting, Woken bool
	// Which, with Held, is the key that is in the way where several were asked for: 0 for Key, else
	// n for the nth of With. Slot is the slot that was granted.
	Which, Slot uint8
	// Counter is the counter under which the node granted.
	Counter uint64
	// Holder, with Held, is the holder id found on the node.
	Holder string
	// Left is how long the node keeps the other's key (Held; negative when
	// it has no expiry), or how long until it can be admitted (NotAdmitted;
	// zero when not known).
	Left time.Duration
	// Err says more about every verdict but Granted and Held.
	Err error
}

// MayHold reports whether the node may hold our key after it gave this answer.
func (a Answer) MayHold() bool {
	return a.Verdict == Granted || a.Verdict == Unknown || a.Verdict == NotReplicated
}

// Reserved reports that the node keeps the free key for a waiter that it has woken up.
func (a Answer) Reserved() bool { return a.Verdict == Held && a.Holder == "" }

// WakeUp is a node's message to a waiter that it may take the key now. Waiter is the name by which
// the node knows it.
type WakeUp struct {
	Waiter, Key string
	// From is the holder who leaves its keys on other nodes to the waiter, if any.
	From string
}

// Position is a node's answer about a waiter in its wait queue: Held, or the reason why it keeps no
// queue. A free key is Reserved for the first waiter. Left is the remaining time of the key or, when it is
// free, of the waiter that was woken up to take it.
type Position struct {
	Answer
	Ticket Ticket
	// Ahead is how many waiters come first. With none ahead, the waiter may take a free key.
	Ahead int
	// Hears: the waiter will be woken up. Watched: it will be told when the key changes.
	Hears, Watched bool
	// From is the holder who leaves its keys on other nodes to the waiter that is woken up, if any.
	From string
}

// SharedMark begins the value of a key that readers have, and is what is named as its holder. Who
// the readers are is in a key beside it.
const SharedMark = "redlatch:shared"

// HolderIn returns the holder that a key's value names. For a key that readers have, that is the
// same on all nodes.
func HolderIn(value string) string {
	if strings.HasPrefix(value, SharedMark+" ") {
		return SharedMark
	}
	return value
}
