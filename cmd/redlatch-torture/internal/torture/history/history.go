// Package history is what a torture leaves to be judged: who held what from when
// to when, what was written, and what was done to whom meanwhile. All times are
// CLOCK_MONOTONIC's, in ns.
package history

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// History is one run's.
type History struct {
	Start, End int64
	TTL        time.Duration
	Kept       time.Duration // how long keys may stay of who died or could not release them, if longer than the TTL
	Drift      time.Duration // by how much clocks may be off, as promised
	Nodes      int
	Workers    int
	Names      []string
	Slots      []string // those of Names that are permits'
	// Parts are where there is one node: which part of it each name is in, from 1.
	// A name can be locked while its part is up. Else a majority of the nodes
	// decides.
	Parts map[string]int
	// Labels are the nodes' names for a reader, "node 1" and so on if there are none.
	Labels []string

	Holds  []Hold    // by From
	Failed []Attempt // acquisitions that were given up
	Probes []Attempt // of the one who has a lock for itself
	Ops    []Op      // on the guarded registers
	Faults []Fault   // by Began
	Writes []Write   // in the order in which each register took them
	Looks  []Look
	// Refusals is how often a client was refused because its settings are not the deployment's.
	Refusals int
	// Errors are the workers' and nodes' own: what should not have happened.
	Errors []string
}

// Hold is one acquisition.
type Hold struct {
	Name         string
	Worker, Life int
	Call         int64 // the worker began to acquire
	From         int64 // it holds
	Until        int64 // the end of the validity that it had in the end
	End          int64 // it relies on it no more: released, known lost, run out, dead
	Token        uint64
	Shared       bool // a reader's
	Further      bool // of the further names of a set, each of which has a Hold
	// Released is when the release was confirmed or failed, 0 if it never ended.
	Released  int64
	Confirmed bool
	Lost      bool // it knew that it had lost it
	Died      int64
}

// Attempt is an acquisition, acquired or not, from its call to its answer. End
// is 0 if there was none.
type Attempt struct {
	Name      string
	Worker    int
	Call, End int64
	Acquired  bool
	Further   bool // of the further names of a set, or of the further slots: there is one Attempt for each
	Why       string
	Died      int64 // of its worker in the midst of it
}

// Op is an operation on a guarded register, as its worker saw it. End is 0 if
// the worker never learned what came of it.
type Op struct {
	Name      string
	Worker    int
	Call, End int64
	Token     uint64
	Wrote     string // "" for a read
	Read      string
	Shared    bool // by a reader, who may have a token smaller than others'
	Stale     bool
	Died      int64 // of its worker in the midst of it
}

// Write is one that a register took: ID over Prev, as its worker had read it.
type Write struct {
	Name     string
	Guarded  bool
	ID, Prev string
}

// Fault is something done to nodes or workers.
type Fault struct {
	ID      int
	Kind    string
	Nodes   []int // from 1
	Workers []int // from 1
	Began   int64
	Ended   int64
	// Out is until when the nodes count as out, 0 if they never did.
	Out    int64
	Step   time.Duration // of the nodes' clocks at Began, taken back at Ended
	Split  bool          // the nodes are out for Workers only
	Part   int           // the one part of the node that is out, 0 for all of it
	Detail string
	Err    string
}

// Look is one key on one node, while no worker was at work and no recent fault
// at the node.
type Look struct {
	At    int64
	Node  int
	Name  string
	Left  time.Duration // of its TTL, if it is there
	Found bool
}

// Steps are the forward steps of a node's clock by more than the drift: when
// they happened.
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

// Majority is how many nodes are a quorum.
func (h *History) Majority() int { return h.Nodes/2 + 1 }

// Label names a node, from 1.
func (h *History) Label(node int) string {
	if node <= len(h.Labels) {
		return h.Labels[node-1]
	}
	return "node " + strconv.Itoa(node)
}

// Span is a time from and to.
type Span struct{ From, To int64 }

// Recovery is how long it may take, where there is one node, until a name can be
// locked that could not be while a part was out.
const Recovery = 3 * time.Second

// Up returns when nothing stood in the way of the name, in order.
func (h *History) Up(name string) []Span {
	if len(h.Parts) == 0 {
		return h.QuorumUp()
	}
	return h.without(func(f Fault) bool { return f.Part == 0 || f.Part == h.Parts[name] })
}

// without returns when no such fault had a node out, in order.
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

// QuorumUp returns when a quorum of nodes was up, in order; where there is one node,
// when all of it was.
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
