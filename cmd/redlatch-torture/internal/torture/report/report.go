// Package report writes the result of a torture, as text, as JSON and as an HTML page.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
)

// Report is the result of a torture.
type Report struct {
	// Topology is the topology of the servers, or the name of the engine if Engine is set.
	Topology string
	Engine   bool
	Started  time.Time
	Seed     uint64
	Asked    time.Duration
	TTL      time.Duration
	Nodes    int
	Workers  int
	Names    []string // all that can be held: names of locks, and slots
	Locks    int      // how many names the workers contended for
	// Primitive is the value of the option: what the workers took.
	Primitive string
	Servers   string
	Yours     bool
	Subject   string // whose lock was tested: "redlatch", or "other" with another library's worker
	Kinds     []string
	LeftOut   string // the faults that were not possible here, and why

	History  *history.History
	Findings *judge.Findings
	// Control is what the judge found in the control run, whose lock has the Bug. It is nil if there was no
	// control run.
	Control *judge.Findings
	Bug     string
	// Interrupted is set if the run ended before its time.
	Interrupted bool
}

// Violations returns a line for each thing that must not happen and did.
func (r *Report) Violations() []string {
	f := r.Findings
	var found []string
	add := func(n int, one, many, first string) {
		switch {
		case n == 1:
			found = append(found, one+first)
		case n > 1:
			found = append(found, fmt.Sprintf("%d %s%s", n, many, first))
		}
	}
	if len(f.Overlaps) > 0 {
		o := f.Overlaps[0]
		add(len(f.Overlaps), "an overlap", "overlaps", fmt.Sprintf(", the first of %s at %s for %v: %s held while %s did",
			o.Name, r.at(o.At), o.For.Round(time.Microsecond), o.OtherName, o.HolderName))
	}
	add(f.Guarded.Lost, "a lost update on a guarded register", "lost updates on the guarded registers", "")
	if len(f.Tokens) > 0 {
		add(len(f.Tokens), "a fencing token out of order", "fencing tokens out of order", ", the first: "+f.Tokens[0])
	}
	if len(f.Strange) > 0 {
		add(len(f.Strange), "a hold of something that does not exist", "holds of something that does not exist", ", the first: "+f.Strange[0])
	}
	if len(f.Orphans) > 0 {
		o := f.Orphans[0]
		add(len(f.Orphans), "a key left behind", "keys left behind", fmt.Sprintf(", the first of %s on %s at %s", o.Name, r.History.Label(o.Node), r.at(o.At)))
	}
	if len(f.Refused) > 0 {
		o := f.Refused[0]
		add(len(f.Refused), "a lock that could not be acquired", "times in which a lock could not be acquired", fmt.Sprintf(
			" though nothing prevented it, the first of %s from %s for %v", o.Name, r.at(o.At), o.For.Round(time.Millisecond)))
	}
	if f.Linearizable.Locks == judge.Violated {
		found = append(found, "the history of the locks is not linearizable")
	}
	if f.Linearizable.Registers == judge.Violated {
		found = append(found, "the history of the guarded registers is not linearizable")
	}
	return append(found, r.History.Errors...)
}

// Unproved returns a line for each reason why a run without violations proves nothing.
func (r *Report) Unproved() []string {
	var why []string
	fired := r.Fired()
	for _, k := range r.Kinds {
		if fired[k] == 0 && (k != "blackout" || r.Asked >= 40*time.Second) {
			why = append(why, "no fault of the kind "+k+" happened: the run was too short")
		}
	}
	if fired["stranger"] > 0 && r.History.Refusals == 0 {
		why = append(why, "no client with other settings was refused because of them")
	}
	if len(r.History.Faults) == 0 {
		why = append(why, "no fault happened")
	}
	if least := int(r.length().Seconds()) * 2; r.Findings.Acquisitions < least {
		why = append(why, fmt.Sprintf("a lock was acquired only %d times: %d would be 2 per second", r.Findings.Acquisitions, least))
	}
	for _, name := range r.Names {
		if r.Findings.ByName[name] == 0 {
			why = append(why, "nobody acquired "+name)
		}
	}
	why = append(why, r.alone()...)
	// A short run has one look, or none, and any worker may have had each name during that.
	if r.Findings.Looks == 0 && (len(r.History.Parts) > 0 || r.Asked >= time.Minute) && !r.Interrupted {
		why = append(why, "nobody looked for keys left behind")
	}
	if linear := r.Findings.Linearizable; linear.Locks == judge.Unknown || linear.Registers == judge.Unknown {
		why = append(why, "the time did not suffice to tell whether all histories are linearizable")
	}
	switch {
	case r.Interrupted:
	case r.Control == nil:
		why = append(why, "there was no control run")
	case len(r.Control.Overlaps)+len(r.Control.Tokens)+r.Control.Guarded.Lost == 0:
		why = append(why, "the control run, whose lock is broken ("+r.Bug+"), showed no violation")
	}
	return why
}

// Verdict is the result in a few words.
func (r *Report) Verdict() string {
	switch {
	case len(r.Violations()) > 0:
		return "VIOLATED"
	case r.Interrupted:
		return "interrupted; nothing was violated so far"
	case len(r.Unproved()) > 0:
		return "nothing was violated, and nothing proved"
	}
	return "nothing was violated"
}

// again returns the command that repeats the run with the same faults.
func (r *Report) again() string {
	command := fmt.Sprintf("redlatch-torture run --for %v --seed %d --workers %d --names %d --ttl %v", r.Asked, r.Seed, r.Workers, r.Locks, r.TTL)
	if r.Primitive != "" && r.Primitive != "mutex" {
		command += " --primitive " + r.Primitive
	}
	if r.Yours { // their URLs may have passwords
		command += " --nodes URL,... --against-my-nodes"
	} else {
		command += " --" + r.chosenBy() + " " + r.Topology
	}
	if !r.Yours && len(r.History.Parts) == 0 {
		command += fmt.Sprintf(" --nodes-count %d", r.Nodes)
	}
	return command + " --faults " + strings.Join(r.Kinds, ",")
}

// chosenBy returns the name of the option that chose the topology.
func (r *Report) chosenBy() string {
	if r.Engine {
		return "engine"
	}
	return "topology"
}

// OK reports whether the run proved something and nothing was violated.
func (r *Report) OK() bool { return len(r.Violations()) == 0 && len(r.Unproved()) == 0 }

// Fired counts the faults by their kind.
func (r *Report) Fired() map[string]int {
	fired := map[string]int{}
	for _, f := range r.History.Faults {
		if f.Err == "" {
			fired[f.Kind]++
		}
	}
	return fired
}

func (r *Report) length() time.Duration { return time.Duration(r.History.End - r.History.Start) }

// at formats a time of the history as a time since the start of the run.
func (r *Report) at(t int64) string {
	return fmt.Sprintf("%.3f s", time.Duration(t-r.History.Start).Seconds())
}

// row is a line of the summary.
type row struct{ Name, Value, Note string }

// rows returns the lines of the summary.
func (r *Report) rows() []row {
	f, a := r.Findings, r.Findings.Availability
	rows := []row{
		{"seed", fmt.Sprint(r.Seed), ""},
		{r.chosenBy(), r.Topology, ""},
		{"nodes", fmt.Sprint(r.Nodes), r.Servers},
		{"workers", fmt.Sprint(r.Workers), fmt.Sprintf("processes, %d locks, TTL %v", r.Locks, r.TTL)},
		{"time", fmt.Sprintf("%.1f s", r.length().Seconds()), ""},
		{"faults", fmt.Sprint(len(r.History.Faults)), r.firedText()},
		{"acquisitions", fmt.Sprint(f.Acquisitions), fmt.Sprintf("%d given up, %d known lost in time", f.GaveUp, f.KnownLost)},
		{"overlaps", fmt.Sprint(len(f.Overlaps)), "of two holders, while all assumptions held"},
		{"overlaps outside", fmt.Sprint(len(f.Outside)), "of two holders, after a node's clock was stepped forward, when nothing is promised"},
		{"tokens out of order", fmt.Sprint(len(f.Tokens)), ""},
		{"lost updates, guarded", fmt.Sprint(f.Guarded.Lost), fmt.Sprintf("of %d writes; %d accesses refused as stale", f.Guarded.Writes, f.Guarded.Refused)},
		{"lost updates, open", fmt.Sprint(f.Open.Lost), fmt.Sprintf("of %d writes: a fencing token prevents these", f.Open.Writes)},
		{"refused", fmt.Sprint(len(f.Refused)), fmt.Sprintf("times in which one node that was up gave no lock for longer than %v", history.Recovery)},
		{"keys left behind", fmt.Sprint(len(f.Orphans)), fmt.Sprintf("in %d looks while all workers were at rest", f.Looks)},
		{"availability", percent(a.Share()), fmt.Sprintf("of %d tries for a free lock, while a quorum was up (%s of the time)", a.Tried, percent(ratio(a.QuorumUp, a.Length)))},
		{"", percent(a.Overall()), fmt.Sprintf("of all %d tries", a.AllTried)},
		{"waits", fmt.Sprintf("%s median", span(f.Waits.Median)), fmt.Sprintf("%s p99, %s longest", span(f.Waits.P99), span(f.Waits.Max))},
		{"linearizable, locks", f.Linearizable.Locks, fmt.Sprintf("%d operations on locks and registers, by porcupine", f.Linearizable.Operations)},
		{"guarded registers", f.Linearizable.Registers, ""},
	}
	rows = append(rows, r.together()...)
	if n := r.Fired()["stranger"]; n > 0 {
		rows = append(rows, row{"other settings", fmt.Sprint(r.History.Refusals), fmt.Sprintf("times that one of %d clients with other settings was refused because of them; no other answer is right", n)})
	}
	if r.Control != nil {
		rows = append(rows, row{"control run's overlaps", fmt.Sprint(len(r.Control.Overlaps)),
			fmt.Sprintf("and %d lost updates, %d tokens out of order, in %d acquisitions of a lock that is broken on purpose (%s)",
				r.Control.Open.Lost, len(r.Control.Tokens), r.Control.Acquisitions, r.Bug)})
	}
	return rows
}

func (r *Report) firedText() string {
	fired := r.Fired()
	var parts []string
	for _, k := range r.Kinds {
		parts = append(parts, fmt.Sprintf("%d %s", fired[k], k))
	}
	slices.SortStableFunc(parts, func(a, b string) int { return cmp.Compare(number(b), number(a)) })
	return strings.Join(parts, ", ")
}

func number(s string) (n int) {
	_, _ = fmt.Sscan(s, &n) // s begins with a number
	return n
}

func ratio(part, of time.Duration) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

func percent(share float64) string {
	if share > 0.99 && share < 1 { // must not be rounded to 100 %
		return fmt.Sprintf("%.3f %%", min(100*share, 99.999))
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func span(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
