// Package judge looks at the history of a torture and says what was violated. It
// asks no lock and no node: what the workers wrote down, the registers and the
// record of the faults are all it knows.
package judge

import (
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

// Findings are what a history shows.
type Findings struct {
	Acquisitions int            `json:"acquisitions"` // without the probe's
	ByName       map[string]int `json:"by_name"`
	Together     Together       `json:"together"`
	Strange      []string       `json:"strange"` // holds of what there is not, such as a slot beyond the last
	GaveUp       int            `json:"gave_up"`
	KnownLost    int            `json:"known_lost"` // locks whose holder knew in time that it lost them

	// Overlaps are acquisitions of a lock on which somebody still relied.
	// Outside are those where the clock of a node had been stepped forward under
	// the earlier holder, by more than the drift: no lock on Redis promises
	// anything there.
	Overlaps []Overlap `json:"overlaps"`
	Outside  []Overlap `json:"overlaps_outside_assumptions"`

	Guarded Register `json:"guarded_register"`
	Open    Register `json:"open_register"`
	Tokens  []string `json:"token_disorders"`

	Availability Availability `json:"availability"`
	Waits        Waits        `json:"waits"`

	// Refused are names that could not be locked for longer than
	// history.Recovery though their part of the one node was up.
	Refused []Refusal `json:"refused"`

	Orphans []Orphan `json:"orphans"`
	Looks   int      `json:"orphan_looks"`

	Linearizable Linearizability `json:"linearizability"`
}

// Overlap is a hold that began while another's validity ran.
type Overlap struct {
	Name          string        `json:"name"`
	Holder, Other int           `json:"-"`
	HolderName    string        `json:"holder"`
	OtherName     string        `json:"other"`
	At            int64         `json:"at_ns"` // of the history
	For           time.Duration `json:"for_ns"`
}

// Register is one sort of register, of all names.
type Register struct {
	Writes int `json:"writes"`
	// Lost are writes over which another was written that had not seen them.
	Lost    int `json:"lost"`
	Refused int `json:"refused"` // accesses with a stale token
}

// Availability is what the probe found, who had a lock for itself.
type Availability struct {
	QuorumUp time.Duration `json:"quorum_up_ns"`
	Length   time.Duration `json:"length_ns"`
	// Tried and Served count the tries that lay within a time in which a quorum
	// was up; AllTried and AllServed all.
	Tried     int `json:"tried"`
	Served    int `json:"served"`
	AllTried  int `json:"all_tried"`
	AllServed int `json:"all_served"`
}

// Share is how many of the tries succeeded while a quorum was up.
func (a Availability) Share() float64 { return share(a.Served, a.Tried) }

// Overall is how many of all tries succeeded.
func (a Availability) Overall() float64 { return share(a.AllServed, a.AllTried) }

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Waits are of contended acquisitions that succeeded.
type Waits struct {
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
	Max    time.Duration `json:"max_ns"`
}

// Refusal is a time in which a name could not be locked.
type Refusal struct {
	Name string        `json:"name"`
	At   int64         `json:"at_ns"` // of the history
	For  time.Duration `json:"for_ns"`
}

// Orphan is a lock's key that nobody could have wanted.
type Orphan struct {
	Name string        `json:"name"`
	Node int           `json:"node"`
	At   int64         `json:"at_ns"`
	Left time.Duration `json:"left_ns"`
}

// Judge looks at h for no longer than patience where that cannot be foreseen.
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
			continue // the beginning or the end cut it short
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
	for _, up := range spans { // of several masters it is their average
		for _, s := range up {
			f.Availability.QuorumUp += time.Duration(s.To-s.From) / time.Duration(len(spans))
		}
	}
}

// refused looks for times in which a name of the one node could not be locked, though
// nothing stood in the way of it for long.
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
