// Package judge looks at the history of a torture and says what was violated. It does not
// ask the locks or the nodes. All it knows is what the workers wrote down, the writes of the registers,
// the looks for keys, and the faults.
package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

// Findings are what a history shows.
type Findings struct {
	Acquisitions int            `json:"acquisitions"` // without the probe's; a set counts once
	ByName       map[string]int `json:"by_name"`      // acquisitions of each name
	Together     Together       `json:"together"`
	Strange      []string       `json:"strange"` // holds of what does not exist, such as a slot beyond the last
	GaveUp       int            `json:"gave_up"`
	KnownLost    int            `json:"known_lost"` // locks that were lost and whose holder learned of it

	// Overlaps are acquisitions of a lock on which another holder still relied.
	// Outside are those for which the clock of a node had been stepped forward while the
	// earlier holder had the lock, by more than the drift. No lock on Redis promises
	// anything then.
	Overlaps []Overlap `json:"overlaps"`
	Outside  []Overlap `json:"overlaps_outside_assumptions"`

	Guarded Register `json:"guarded_register"`
	Open    Register `json:"open_register"`
	Tokens  []string `json:"token_disorders"`

	Availability Availability `json:"availability"`
	Waits        Waits        `json:"waits"`

	// Refused are times longer than history.Recovery in which a name could not be
	// locked although its part of the one node was up.
	Refused []Refusal `json:"refused"`

	Orphans []Orphan `json:"orphans"`
	Looks   int      `json:"orphan_looks"`

	Linearizable Linearizability `json:"linearizability"`
}

// Overlap is a hold that began while another holder relied on the lock.
type Overlap struct {
	Name          string        `json:"name"`
	Holder, Other int           `json:"-"` // workers: the earlier holder, and the later one
	HolderName    string        `json:"holder"`
	OtherName     string        `json:"other"`
	At            int64         `json:"at_ns"` // a time of the history
	For           time.Duration `json:"for_ns"`
}

// Register has the counts of one sort of register, guarded or open, of all names.
type Register struct {
	Writes int `json:"writes"`
	// Lost counts the writes that a later write replaced although its worker had not read them.
	Lost    int `json:"lost"`
	Refused int `json:"refused"` // accesses with a stale token
}

// Availability is what the probe found, which takes locks that nobody else wants.
type Availability struct {
	QuorumUp time.Duration `json:"quorum_up_ns"`
	Length   time.Duration `json:"length_ns"` // of the run
	// Tried counts the tries during which a quorum was up all the time, and Served those of them that
	// succeeded. AllTried and AllServed count all tries.
	Tried     int `json:"tried"`
	Served    int `json:"served"`
	AllTried  int `json:"all_tried"`
	AllServed int `json:"all_served"`
}

// Share returns the share of the tries while a quorum was up that succeeded.
func (a Availability) Share() float64 { return share(a.Served, a.Tried) }

// Overall returns the share of all tries that succeeded.
func (a Availability) Overall() float64 { return share(a.AllServed, a.AllTried) }

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Waits says how long the workers' successful acquisitions took.
type Waits struct {
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
	Max    time.Duration `json:"max_ns"`
}

// Refusal is a time in which a name could not be locked.
type Refusal struct {
	Name string        `json:"name"`
	At   int64         `json:"at_ns"` // a time of the history
	For  time.Duration `json:"for_ns"`
}

// Orphan is a key of a lock that was left behind: no worker had or wanted the lock.
type Orphan struct {
	Name string        `json:"name"`
	Node int           `json:"node"`
	At   int64         `json:"at_ns"`
	Left time.Duration `json:"left_ns"`
}

// Judge looks for violations in h. The search for a linearization, whose time cannot be foreseen, ends after
// patience.
func Judge(h *history.History, patience time.Duration) *Findings {
	f := &Findings{ByName: map[string]int{}}
	for _, a := range h.Failed {
		if !a.Further {
			f.GaveUp++
		}
	}
	for _, name := range h.Names {
		f.ByName[name] = 0
	}
	var held []history.Hold
	for _, hold := range h.Holds {
		if hold.Lost && !hold.Further {
			f.KnownLost++
		}
		if _, ours := f.ByName[hold.Name]; ours {
			f.ByName[hold.Name]++
			if !hold.Further {
				f.Acquisitions++
				held = append(held, hold)
			}
		} else if !slices.ContainsFunc(h.Probes, func(p history.Attempt) bool { return p.Name == hold.Name }) {
			f.Strange = append(f.Strange, hold.Name+": "+who(hold))
		}
	}
	steps := h.Steps()
	byName := map[string][]history.Hold{}
	for _, hold := range h.Holds {
		byName[hold.Name] = append(byName[hold.Name], hold)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		f.overlaps(h, byName[name], steps)
		f.tokens(byName[name])
	}
	f.Together = together(h)
	f.registers(h)
	f.availability(h)
	f.refused(h)
	f.waits(held)
	f.orphans(h)
	f.Linearizable = linearize(h, byName, steps, patience)
	return f
}

// availability counts the probe's tries.
func (f *Findings) availability(h *history.History) {
	f.Availability.Length = time.Duration(h.End - h.Start)
	spans := map[string][]history.Span{}
	for _, p := range h.Probes {
		up, ok := spans[p.Name]
		if !ok {
			up = h.Up(p.Name)
			spans[p.Name] = up
		}
		if p.End == 0 || p.Call < h.Start || p.End > h.End {
			continue // the try was not wholly within the run
		}
		within := slices.ContainsFunc(up, func(s history.Span) bool { return s.From <= p.Call && p.End <= s.To })
		f.Availability.AllTried++
		if within {
			f.Availability.Tried++
		}
		if p.Acquired {
			f.Availability.AllServed++
			if within {
				f.Availability.Served++
			}
		}
	}
	for _, up := range spans { // QuorumUp is the average of all parts
		for _, s := range up {
			f.Availability.QuorumUp += time.Duration(s.To-s.From) / time.Duration(len(spans))
		}
	}
}

// refused looks for times longer than history.Recovery in which a name of the one node could not be locked
// although its part was up.
func (f *Findings) refused(h *history.History) {
	if len(h.Parts) == 0 {
		return
	}
	served := map[string][]int64{}
	for _, p := range h.Probes {
		at := served[p.Name]
		if p.Acquired {
			at = append(at, p.End)
		}
		served[p.Name] = at
	}
	for _, name := range slices.Sorted(maps.Keys(served)) {
		slices.Sort(served[name])
		for _, span := range h.Up(name) {
			since := span.From
			for _, at := range append(slices.Clone(served[name]), span.To) {
				if at < since {
					continue
				}
				at = min(at, span.To)
				if d := time.Duration(at - since); d > history.Recovery {
					f.Refused = append(f.Refused, Refusal{name, since, d})
				}
				since = at
			}
		}
	}
}

// waits computes Waits from the holds.
func (f *Findings) waits(held []history.Hold) {
	if len(held) == 0 {
		return
	}
	waits := make([]time.Duration, len(held))
	for i, hold := range held {
		waits[i] = time.Duration(hold.From - hold.Call)
	}
	slices.Sort(waits)
	f.Waits = Waits{Median: waits[len(waits)/2], P99: waits[len(waits)*99/100], Max: waits[len(waits)-1]}
}
