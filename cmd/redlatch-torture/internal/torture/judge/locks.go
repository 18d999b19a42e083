package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

// overlaps looks for holds of one name that begin before the End of an earlier one, unless both are of
// readers. holds is sorted by From.
func (f *Findings) overlaps(h *history.History, holds []history.Hold, steps []int64) {
	var running []history.Hold
	for _, hold := range holds {
		running = slices.DeleteFunc(running, func(r history.Hold) bool { return r.End <= hold.From })
		if hold.End == hold.From {
			continue // the hold was over before its holder knew of it
		}
		var worst, outside *Overlap
		for _, r := range running {
			if r.Shared && hold.Shared {
				continue
			}
			o := Overlap{
				Name: hold.Name, Holder: r.Worker, Other: hold.Worker, HolderName: who(r), OtherName: who(hold),
				At: hold.From, For: time.Duration(min(r.End, hold.End) - hold.From),
			}
			kind := &worst
			// Either may have had keys first: the later one to know of its lock may have been starved.
			if stepped(steps, min(r.Sent, hold.Sent), hold.From) {
				kind = &outside
			}
			if *kind == nil || o.For > (*kind).For {
				*kind = &o
			}
		}
		switch {
		case worst != nil:
			f.Overlaps = append(f.Overlaps, *worst)
		case outside != nil:
			f.Outside = append(f.Outside, *outside)
		}
		running = append(running, hold)
	}
}

// who names the holder for a message.
func who(h history.Hold) string {
	reader := ""
	if h.Shared {
		reader = "the reader "
	}
	return fmt.Sprintf("%sworker %d.%d, token %d", reader, h.Worker, h.Life, h.Token)
}

// stepped reports whether one of the steps was between the two times.
func stepped(steps []int64, from, to int64) bool {
	i, _ := slices.BinarySearch(steps, from)
	return i < len(steps) && steps[i] <= to
}

// tokens looks for holders of one name whose tokens are not larger than those of earlier holders. A
// reader's token need only be larger than those of earlier writers. A holder is later than another one
// if it called after the other one had acquired the lock, or acquired the lock after the hold of the
// other one had ended.
func (f *Findings) tokens(holds []history.Hold) {
	if !slices.ContainsFunc(holds, func(h history.Hold) bool { return h.Token != 0 }) {
		return // the library has none
	}
	found := map[history.Hold]bool{}
	later := func(by func(history.Hold) int64, ended func(history.Hold) int64, rule string) {
		calls := slices.Clone(holds)
		slices.SortFunc(calls, func(a, b history.Hold) int { return cmp.Compare(by(a), by(b)) })
		ends := slices.Clone(holds)
		slices.SortFunc(ends, func(a, b history.Hold) int { return cmp.Compare(ended(a), ended(b)) })
		var writer, reader history.Hold // those with the largest tokens so far
		next := 0
		for _, c := range calls {
			for next < len(ends) && ended(ends[next]) <= by(c) {
				if e := ends[next]; e.Shared && e.Token > reader.Token {
					reader = e
				} else if !e.Shared && e.Token > writer.Token {
					writer = e
				}
				next++
			}
			largest := writer
			if !c.Shared && reader.Token > writer.Token {
				largest = reader
			}
			if c.Token <= largest.Token && c != largest && !found[c] {
				found[c] = true
				f.Tokens = append(f.Tokens, fmt.Sprintf("%s: %s %s %s", c.Name, who(c), rule, who(largest)))
			}
		}
	}
	later(func(h history.Hold) int64 { return h.Call }, func(h history.Hold) int64 { return h.From }, "called after")
	// A worker that was stopped may have learned that it had acquired a lock only after the validity had ended.
	later(func(h history.Hold) int64 { return min(h.From, h.Until) }, func(h history.Hold) int64 { return h.End }, "held after the end of")
}

// Grace is how long a library may take to delete keys after a call has returned.
const Grace = 400 * time.Millisecond

// orphans looks for keys that were found while no worker had or wanted the lock.
func (f *Findings) orphans(h *history.History) {
	// wanted is a time in which a worker may have a key of a name. If the worker died, or could not
	// release the lock, the key stays until its TTL or the worker's session has ended.
	type wanted struct{ from, to int64 }
	by := map[string][]wanted{}
	kept := int64(max(h.TTL, h.Kept))
	const margin = int64(250 * time.Millisecond)
	for _, hold := range h.Holds {
		to := hold.Released + int64(Grace)
		switch {
		case hold.Released == 0 && hold.Died != 0:
			to = hold.Died + kept + margin
		case hold.Released == 0:
			to = h.End
		case !hold.Confirmed:
			to = hold.Released + kept + margin
		}
		by[hold.Name] = append(by[hold.Name], wanted{hold.Call, to})
	}
	for _, a := range h.Failed {
		to := a.End + int64(Grace)
		switch {
		case a.End == 0 && a.Died != 0:
			to = a.Died + kept + margin
		case a.End == 0:
			to = h.End
		}
		by[a.Name] = append(by[a.Name], wanted{a.Call, to})
	}
	for _, look := range h.Looks {
		mine := slices.ContainsFunc(by[look.Name], func(w wanted) bool { return w.from <= look.At && look.At <= w.to })
		if mine || disturbed(h, look.Node, look.At-kept-margin, look.At) {
			continue
		}
		f.Looks++
		if look.Found {
			f.Orphans = append(f.Orphans, Orphan{Name: look.Name, Node: look.Node, At: look.At, Left: look.Left})
		}
	}
}

// disturbed reports whether the node had a fault in that time. A library cannot delete keys on a node
// that it cannot reach.
func disturbed(h *history.History, node int, from, to int64) bool {
	for _, f := range h.Faults {
		if f.Began > to {
			return false
		}
		here, over := slices.Contains(f.Nodes, node), max(f.Ended, f.Out)
		if len(h.Labels) > 0 {
			// Several servers make up the node, and a fault of one is a fault of the node. It is over at Ended,
			// since a node in quarantine does not vote but still deletes keys.
			here, over = len(f.Nodes) > 0, f.Ended
		}
		if here && over >= from {
			return true
		}
	}
	return false
}
