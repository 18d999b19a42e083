package redlatch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/listing"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// These are the errors that callers tell apart with errors.Is.
var (
	// ErrHeld says that another holder has the lock, or the votes of so many nodes that there was
	// no quorum.
	ErrHeld = errors.New("held by another")
	// ErrLost says that the lock was held and is not any more. It is final: others may be at work, and
	// what is left to do takes a new lock.
	ErrLost = errors.New("lock lost")
	// ErrMaxHold says that the lock ended because it is not renewed for longer than MaxHold. It
	// comes with ErrLost, or with ErrInvalid from Lock.Extend.
	ErrMaxHold = errors.New("its MaxHold is over")
	// ErrReleased says that the lock was released, by Unlock or by Close, or given up by Detach.
	ErrReleased = errors.New("lock released")
	// ErrNoQuorum says that too few nodes could be reached, answered in time, or could do it now.
	ErrNoQuorum = errors.New("no quorum")
	// ErrNotAdmitted says that nodes that may have forgotten locks do not vote yet, and the others
	// are too few.
	ErrNotAdmitted = errors.New("nodes not admitted")
	// ErrOverloaded says that the client holds as many locks as it can renew in time. It acquires
	// no more until it can keep them. Nothing was sent. Locks that are renewed one by one, as in
	// ZooKeeper and etcd, do not count.
	ErrOverloaded = errors.New("this client holds as many locks as it can renew in time")
	// ErrRefused says that servers answered with errors that waiting does not cure.
	ErrRefused = errors.New("refused by the server")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("client closed")
	// ErrInvalid says that a setting or an argument cannot work.
	ErrInvalid = admission.ErrInvalid
)

// Verdict is what one node's answer amounts to.
type Verdict = vote.Verdict

// The verdicts of a NodeAnswer.
const (
	VoteUnknown     = vote.Unknown     // sent, no reply: it may have been done or not
	VoteNotSent     = vote.NotSent     // never left this process
	VoteGranted     = vote.Granted     // done as asked
	VoteHeld        = vote.Held        // another holder has the lock on this node
	VoteNotOurs     = vote.NotOurs     // this holder has nothing on this node
	VoteNotAdmitted = vote.NotAdmitted // may have forgotten locks; does not vote yet
	VoteRefused     = vote.Refused     // the server answered with an error
	// VoteNotReplicated: done, but too few replicas have acknowledged it (Config.Replicas).
	VoteNotReplicated = vote.NotReplicated
	// VoteUnavailable: the server answered that it cannot do this now, such as OOM, MISCONF,
	// NOREPLICAS, LOADING or BUSY, or READONLY, since it is a replica now. A call that waits for the lock goes on waiting.
	VoteUnavailable = vote.Unavailable
)

// NodeAnswer is one node's part in a vote.
type NodeAnswer struct {
	// Node is the node's address, or its #name.
	Node    string
	Verdict Verdict
	// Holder is who has the lock there, if Verdict is VoteHeld. It has no ID where the node keeps the
	// lock for a client that waits, or a foreign key without a value is in the way. Name says which
	// lock that is, if several names were to be locked; otherwise it is empty.
	Holder Holder
	Name   string
	// Left is how long the node keeps the other's lock (VoteHeld; negative for ever), or how long
	// it takes until the node may vote (VoteNotAdmitted); 0 if that is not known.
	Left time.Duration
	// Err says more: the server's own words, or what kept the node from answering.
	Err error
}

func (a NodeAnswer) String() string { return a.Node + ": " + a.text() }

// text is the answer without the node.
func (a NodeAnswer) text() string {
	if a.Verdict == VoteUnknown && a.Err == nil {
		return "not waited for"
	}
	var b strings.Builder
	b.WriteString(a.Verdict.String())
	if a.Verdict == VoteHeld {
		b.WriteString(" (")
		if a.Name != "" {
			fmt.Fprintf(&b, "%q: ", a.Name)
		}
		b.WriteString(inTheWay(a.Holder))
		if a.Left > 0 {
			fmt.Fprintf(&b, ", %v left", a.Left.Round(time.Millisecond))
		}
		b.WriteString(")")
	}
	if a.Err != nil {
		// The error of a request that was not sent says so, too, also where the server has refused the connection.
		fmt.Fprintf(&b, ": %s", strings.TrimPrefix(a.Err.Error(), VoteNotSent.String()+": "))
	}
	return b.String()
}

// inTheWay says who keeps others from a lock, as far as the nodes tell.
func inTheWay(h Holder) string {
	if h.ID == "" {
		return "a client that waits, or a key without a value"
	}
	return fmt.Sprint(h)
}

// QuorumError is the outcome of a vote that did not get its quorum. errors.Is finds what it amounts
// to: ErrNoQuorum or ErrRefused; also ErrNotAdmitted if a vote was asked for, and ErrHeld or
// ErrOverloaded if a lock was. errors.As finds the nodes' own errors.
type QuorumError struct {
	// Op is "lock", "extend", "unlock", "observe" or "list", or that of a one-shot call: "take",
	// "extend", "release" or "query".
	Op string
	// Name is the name of the lock. Of several names it is the one that most nodes say is held, if
	// one is, and otherwise the one that was given first. It is empty for List.
	Name string
	// Need of Of nodes had to say yes.
	Need, Of int
	// Nodes has one answer for each configured node, in their order. A node whose answer was not
	// waited for, or is out of date in a call that waits, has VoteUnknown and no Err.
	Nodes []NodeAnswer

	kind error
	// here: a lock of this very client is in the way. It was asked for at site, if that is known.
	here bool
	site string
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	kind := fmt.Sprint(e.kind)
	if e.here {
		kind = "held by this client"
		if e.site != "" {
			kind += ", by the call at " + e.site
		}
	}
	b.WriteString(e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	fmt.Fprintf(&b, ": %s", kind)
	if holder, left, ok := e.Holder(); ok && e.kind == ErrHeld {
		fmt.Fprintf(&b, ": %s", inTheWay(holder))
		if left >= 0 {
			fmt.Fprintf(&b, ", expires in %v", left.Round(time.Millisecond))
		}
		return b.String()
	}
	if e.kind == ErrOverloaded {
		return b.String()
	}
	yes := 0
	for _, a := range e.Nodes {
		if a.Verdict == VoteGranted {
			yes++
		}
	}
	fmt.Fprintf(&b, ": %d of %d nodes said yes, %d needed", yes, e.Of, e.Need)
	if yes >= e.Need {
		b.WriteString(", but too late, or not under one token")
	}
	var texts []string // in the order of the first node that answered so
	nodes := make(map[string][]string)
	for _, a := range e.Nodes {
		if a.Verdict == VoteGranted {
			continue
		}
		text := a.text()
		if nodes[text] == nil {
			texts = append(texts, text)
		}
		nodes[text] = append(nodes[text], a.Node)
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "; %s: %s", strings.Join(nodes[text], ", "), text)
	}
	return b.String()
}

// Unwrap returns what the vote amounts to, and the nodes' errors.
func (e *QuorumError) Unwrap() []error {
	errs := []error{e.kind}
	for _, a := range e.Nodes {
		if a.Err != nil {
			errs = append(errs, a.Err)
		}
	}
	return errs
}

// Holder returns who has the lock on most nodes, and how long a quorum of nodes keeps it at least, or
// all that have it if they are none, unless it is extended or released; left is negative if the lock
// has no expiry. ok is false if no node has the lock for another. h has no ID where NodeAnswer.Holder
// has none.
func (e *QuorumError) Holder() (h Holder, left time.Duration, ok bool) {
	on := make(map[string][]time.Duration)
	for _, a := range e.Nodes {
		if a.Verdict != VoteHeld {
			continue
		}
		id := a.Holder.ID
		on[id] = append(on[id], a.Left)
		if !ok || len(on[id]) > len(on[h.ID]) {
			h, ok = a.Holder, true
		}
	}
	if ok {
		left = listing.Kept(on[h.ID], e.Need)
	}
	return h, left, ok
}

// split reports whether nobody seems to have got the lock: several holders are in the way, or they
// have it on fewer nodes than a quorum.
func (e *QuorumError) split() bool {
	on := make(map[string]int)
	most, open := 0, 0
	for _, a := range e.Nodes {
		switch {
		case a.Verdict == VoteHeld:
			on[a.Holder.ID]++
			most = max(most, on[a.Holder.ID])
		case a.Verdict == VoteUnknown && a.Err == nil: // not waited for
			open++
		}
	}
	return e.kind == ErrHeld && most < e.Need && (len(on) > 1 || most+open < e.Need)
}

// newQuorumError returns the error of a failed vote. Its kind is what would have to change for the
// vote to succeed: of several such things, the one that changes by itself soonest.
func newQuorumError(op, name string, nodes []NodeAnswer) *QuorumError {
	e := &QuorumError{Op: op, Name: name, Need: quorum.Majority(len(nodes)), Of: len(nodes), Nodes: nodes}
	of := make(map[Verdict]int)
	for _, a := range nodes {
		of[a.Verdict]++
	}
	if op != "lock" && op != "take" {
		// Another holder's key is not in the way there: the node counts as one that has no key.
		of[VoteNotOurs] += of[VoteHeld]
		of[VoteHeld] = 0
	}
	if op == "unlock" {
		of[VoteNotAdmitted] = 0 // nodes release without being admitted
	}
	// The answers that were not waited for might have been anything.
	for _, a := range nodes {
		if a.Verdict == VoteUnknown && a.Err == nil {
			of[VoteGranted]++
		}
	}
	switch {
	case of[VoteHeld] > 0 && of[VoteGranted]+of[VoteHeld] >= e.Need:
		e.kind = ErrHeld
	case of[VoteNotAdmitted] > 0 && of[VoteGranted]+of[VoteHeld]+of[VoteNotAdmitted] >= e.Need:
		e.kind = ErrNotAdmitted
	case of[VoteRefused] > e.Of-e.Need:
		e.kind = ErrRefused
	default:
		e.kind = ErrNoQuorum
	}
	return e
}

// newOverloadError returns the error of an attempt that was not begun because the client is
// overloaded.
func newOverloadError(name string, nodes []NodeAnswer) *QuorumError {
	for i := range nodes {
		nodes[i].Verdict = VoteNotSent
	}
	return &QuorumError{Op: "lock", Name: name, Need: quorum.Majority(len(nodes)), Of: len(nodes), Nodes: nodes, kind: ErrOverloaded}
}

// invalid returns ErrInvalid with what is wrong, and how to mend it.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
