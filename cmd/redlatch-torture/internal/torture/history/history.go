// Package history has what a torture leaves for the judge: who held which lock from when
// to when, what was written to the registers, and which faults there were. All times are
// of CLOCK_MONOTONIC, in ns.
package history

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// History is that of one run.
type History struct {
	Start, End int64
	TTL        time.Duration
	// Kept is how long the keys of a holder may stay that died or could not release them, if that is longer
	// than the TTL.
	Kept    time.Duration
	Drift   time.Duration // by how much clocks may differ under the lock's promises
	Nodes   int
	Workers int
	Names   []string
	Slots   []string // those of Names that are slots of permits
	// Parts says which part of the node each name is in, from 1, if there is only one node.
	// A name can be locked while its part is up. With several nodes Parts is nil, and a name can be
	// locked while a majority of the nodes is up.
	Parts map[string]int
	// Labels are the nodes' names for a reader. If there are none, the names are "node 1" and so on.
	Labels []string

	Holds  []Hold    // sorted by From
	Failed []Attempt // acquisitions that were given up
	Probes []Attempt // of the probe, which takes locks that nobody else wants
	Ops    []Op      // on the guarded registers
	Faults []Fault   // sorted by Began
	Writes []Write   // of each register in the order in which they happened
	Looks  []Look
	// Refusals is how often a client was refused because its settings are not the deployment's.
	Refusals int
	// Errors has what failed in the workers, in the nodes and in the torture itself.
	Errors []string
}

// Hold is one acquisition.
type Hold struct {
	Name         string
	Worker, Life int
	Call         int64 // when the worker began to acquire the lock
	From         int64 // when the worker acquired it
	Sent         int64 // no node had keys of it before: Call, or a TTL before the end of the first validity if that is later
	Until        int64 // the end of the validity, after the last extension
	End          int64 // when the worker stopped relying on it: by release, loss, end of validity or its own death
	Token        uint64
	Shared       bool // the worker is a reader
	Further      bool // the Hold is of a name of a set other than the first; each name has a Hold
	// Released is when the release was confirmed or failed, or 0 if neither happened.
	Released  int64
	Confirmed bool  // the release was confirmed
	Lost      bool  // the worker learned that it had lost the lock
	Died      int64 // when the worker died while it held the lock, or 0
}

// Attempt is an attempt to acquire, from its call to its answer. End is 0 if there was no answer.
type Attempt struct {
	Name      string
	Worker    int
	Call, End int64
	Acquired  bool
	Further   bool // it is of a name of a set, or of a slot, other than the first; each of them has an Attempt
	Why       string
	Died      int64 // when the worker died during it, or 0
}

// Op is an operation on a guarded register, as the worker saw it. End is 0 if
// the worker never got an answer.
type Op struct {
	Name      string
	Worker    int
	Call, End int64
	Token     uint64
	Wrote     string // "" for a read
	Read      string
	Shared    bool // by a reader, whose token may be smaller than that of another reader before it
	Stale     bool
	Died      int64 // when the worker died during it, or 0
}

// Write is a write that a register accepted: the worker had read Prev and wrote ID.
type Write struct {
	Name     string
	Guarded  bool
	ID, Prev string
}

// Fault is a fault of nodes or workers, or the visit of a further client.
type Fault struct {
	ID      int
	Kind    string
	Nodes   []int // from 1
	Workers []int // from 1
	Began   int64
	Ended   int64
	// Out is until when the nodes count as out, or 0 if they never did.
	Out    int64
	Step   time.Duration // by which the nodes' clocks were stepped at Began, and back at Ended
	Split  bool          // the nodes are out only for Workers
	Part   int           // the part of the node that is out, or 0 for all of it
	Detail string
	Err    string
}

// Look says whether a node had the key of a lock at a time at which all workers were told to rest.
type Look struct {
	At    int64 // when the node had answered: a worker that called before may have made the key
	Node  int
	Name  string
	Left  time.Duration // of the key's TTL, if Found
	Found bool
}

// Steps returns the times, in order, at which a node's clock was stepped forward by more than the drift.
func (h *History) Steps() []int64 {
	var at []int64
	for _, f := range h.Faults {
		switch {
		case f.Step > h.Drift:
			at = append(at, f.Began)
		case f.Step < -h.Drift:
			at = append(at, f.Ended)
		}
	}
	slices.Sort(at)
	return at
}

// Majority returns how many nodes are a quorum.
func (h *History) Majority() int { return h.Nodes/2 + 1 }

// Label returns the name of a node, which is numbered from 1.
func (h *History) Label(node int) string {
	if node <= len(h.Labels) {
		return h.Labels[node-1]
	}
	return "node " + strconv.Itoa(node)
}

// Span is a time between two moments.
type Span struct{ From, To int64 }

// Recovery is how long it may take, if there is one node, until a name can be
// locked again after its part was out.
const Recovery = 3 * time.Second

// Up returns the times, in order, in which the name could be locked: those in which a quorum of the nodes
// was up or, if there is one node, the part of the name.
func (h *History) Up(name string) []Span {
	if len(h.Parts) == 0 {
		return h.QuorumUp()
	}
	return h.without(func(f Fault) bool { return f.Part == 0 || f.Part == h.Parts[name] })
}

// without returns the times, in order, in which no such fault kept the node out.
func (h *History) without(such func(Fault) bool) []Span {
	var up []Span
	since := h.Start
	for _, f := range h.Faults {
		if f.Out == 0 || f.Split || !such(f) {
			continue
		}
		if f.Began > since {
			up = append(up, Span{since, f.Began})
		}
		since = max(since, f.Out)
	}
	if since < h.End {
		up = append(up, Span{since, h.End})
	}
	return up
}

// QuorumUp returns the times, in order, in which a quorum of the nodes was up or, if there is one node, all
// of its parts were.
func (h *History) QuorumUp() []Span {
	if len(h.Parts) > 0 {
		return h.without(func(Fault) bool { return true })
	}
	type edge struct {
		at   int64
		node int
		by   int
	}
	var edges []edge
	for _, f := range h.Faults {
		if f.Out == 0 || f.Split {
			continue
		}
		for _, n := range f.Nodes {
			edges = append(edges, edge{f.Began, n, 1}, edge{f.Out, n, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	reasons := make([]int, h.Nodes+1)
	out := 0
	var up []Span
	since, isUp := h.Start, true
	for _, e := range edges {
		before := reasons[e.node] > 0
		reasons[e.node] += e.by
		switch after := reasons[e.node] > 0; {
		case after && !before:
			out++
		case before && !after:
			out--
		}
		now := h.Nodes-out >= h.Majority()
		switch {
		case isUp && !now:
			up = append(up, Span{since, e.at})
		case !isUp && now:
			since = e.at
		}
		isUp = now
	}
	if isUp && since < h.End {
		up = append(up, Span{since, h.End})
	}
	return up
}
