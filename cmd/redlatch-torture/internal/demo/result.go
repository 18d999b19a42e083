package demo

import (
	"fmt"
	"strings"
	"time"
)

// Result is the result of a run.
type Result struct {
	options    Options
	kind       string // which servers the nodes are
	lasted     time.Duration
	tally      *tally
	stories    []*story
	standstill time.Duration // the longest time in which nobody acquired the lock
	// count is the number in the record at the end. countErr is the reason why it could
	// not be read.
	count    uint64
	countErr error
	// deaths has a line for each worker that failed or had to be killed at the end.
	deaths []string
	// Interrupted: ctx ended the run before its time.
	Interrupted bool
}

// Violations returns a line for each thing that must not happen and did.
func (r *Result) Violations() []string {
	var found []string
	say := func(c counter, one, many string) {
		switch {
		case c.n == 1:
			found = append(found, one+": "+c.first)
		case c.n > 1:
			found = append(found, fmt.Sprintf("%d %s, the first: %s", c.n, many, c.first))
		}
	}
	say(r.tally.overlaps, "an overlap", "overlaps")
	switch lost := r.lostUpdates(); {
	case r.countErr != nil:
		found = append(found, fmt.Sprintf("the record cannot be read: %v", r.countErr))
	case lost > 0:
		found = append(found, fmt.Sprintf("%d lost updates: %d were made, the record counts %d", lost, r.tally.updates, r.count))
	case lost < 0:
		found = append(found, fmt.Sprintf("the record counts %d updates, %d were made", r.count, r.tally.updates))
	}
	say(r.tally.garbled, "a garbled record", "garbled records")
	say(r.tally.disorders, "a fencing token out of order", "fencing tokens out of order")
	for _, s := range r.stories {
		if o := s.tooSoon(); o != nil {
			found = append(found, fmt.Sprintf("node %d voted %s after it came back empty: a lock that it forgot may have run for %s",
				s.number, span(o.votes-o.back), span(ttl)))
		}
	}
	return append(found, r.deaths...)
}

// lostUpdates returns how many more updates the workers made than the record counts.
func (r *Result) lostUpdates() int { return r.tally.updates - int(r.count) }

// Unproved says why a run without violations proves nothing. It returns "" if the run
// proves something.
func (r *Result) Unproved() string {
	outages := 0
	for _, s := range r.stories {
		outages += len(s.outages)
	}
	under := 0
	for _, n := range r.tally.byOut[1:] {
		under += n
	}
	switch {
	case r.options.NoLock:
		return "the workers did not use the lock"
	case r.tally.acquisitions == 0:
		return "nobody acquired the lock"
	case outages == 0:
		return "no node was taken out"
	case under == 0:
		return "nobody acquired the lock while a node was out"
	}
	return ""
}

// Summary returns the end of the demo's output.
func (r *Result) Summary() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-20s  %s\n", name, fmt.Sprintf(format, args...))
	}
	each := make([]string, len(r.tally.workers))
	for i, w := range r.tally.workers {
		each[i] = fmt.Sprint(w.acquisitions)
	}
	b.WriteString("\nmeasured\n")
	row("acquisitions", "%d in %s, by worker: %s", r.tally.acquisitions, clockTime(r.lasted), strings.Join(each, " "))
	for out, n := range r.tally.byOut {
		if out > 0 && n > 0 {
			row("", "%d of them with %d of %d nodes out", n, out, r.options.Nodes)
		}
	}
	row("overlaps", "%d", r.tally.overlaps.n)
	if r.countErr != nil {
		row("lost updates", "unknown: %v", r.countErr)
	} else {
		row("lost updates", "%d (%d made, the record counts %d)", r.lostUpdates(), r.tally.updates, r.count)
	}
	if !r.options.NoLock {
		row("tokens out of order", "%d", r.tally.disorders.n)
		wait, worker := r.tally.longestWait()
		row("longest wait", "%s, of worker %d", span(wait), worker+1)
		row("longest standstill", "%s in which nobody acquired the lock", span(r.standstill))
	}
	if r.tally.lost > 0 {
		row("locks lost at work", "%d, noticed in time: no update was made", r.tally.lost)
	}
	if r.tally.unreleased > 0 {
		row("releases unconfirmed", "%d, left to their TTL", r.tally.unreleased)
	}
	fmt.Fprintf(&b, "nodes: %s\n", r.kind)
	for _, s := range r.stories {
		fmt.Fprintf(&b, "  node %-2d  %s\n", s.number, s.summary(r.lasted))
	}
	b.WriteString(r.verdict())
	return b.String()
}

func (r *Result) verdict() string {
	violations := r.Violations()
	switch why := r.Unproved(); {
	case len(violations) > 0:
		return "VIOLATED\n  " + strings.Join(violations, "\n  ")
	case why != "":
		return "nothing was violated, and nothing proved: " + why
	case r.Interrupted:
		return "interrupted; nothing was violated so far"
	}
	return "nothing was violated"
}

// OK reports whether the run proved something and nothing was violated.
func (r *Result) OK() bool { return len(r.Violations()) == 0 && r.Unproved() == "" }

// span formats a duration for people.
func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return clockTime(d)
}

// clockTime formats a time of the race.
func clockTime(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
