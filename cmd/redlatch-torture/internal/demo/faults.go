package demo

import "time"

// The times between faults, and how long they last.
const (
	calm    = 300 * time.Millisecond // before the first fault
	between = 300 * time.Millisecond // from the beginning of one of the first faults to that of the next
	later   = 2 * time.Second        // from the beginning of a later fault to that of the next
	killFor = 400 * time.Millisecond
	hangFor = 800 * time.Millisecond
	// settled is how long a node takes at most to vote again after it came back, if it has no
	// quarantine.
	settled = 300 * time.Millisecond
	// quarantine is about how long a node stays out that came back empty.
	quarantine = ttl + 5*time.Second
)

// first is the number of faults that begin as soon as they can, even in the shortest run.
const first = 3

// faults chooses which node to take out next, and when.
type faults struct {
	length time.Duration // of the race
	nodes  []*story
	forget bool          // killed nodes come back empty, and have a quarantine
	next   int           // index of the next node in the order of place
	begun  int           // faults that have begun
	last   time.Duration // when the latest fault began
}

// choose returns the node that is to be taken out now, and how. It returns false if no node is.
// At most a minority is out at any time. The first faults, two kills and a
// hang, begin as soon as they can. A later one begins only if it can be over, with
// the quarantine, before the race ends.
func (f *faults) choose(now time.Duration) (*story, fault, bool) {
	pause := between
	if f.begun >= first {
		pause = later
	}
	if now < calm || f.begun > 0 && now-f.last < pause || f.out() >= f.minority() {
		return nil, 0, false
	}
	kind := [first]fault{killed, hung, killed}[f.begun%first]
	if !f.fits(kind, now) {
		kind = hung // a hang needs no quarantine
	}
	if !f.fits(kind, now) {
		return nil, 0, false
	}
	for range f.nodes {
		s := f.nodes[f.place()]
		f.next++
		if s.out() == nil {
			f.begun++
			f.last = now
			return s, kind, true
		}
	}
	return nil, 0, false
}

// fits reports whether a fault that begins now ends before the race does. The quarantine of the
// first faults does not count.
func (f *faults) fits(kind fault, now time.Duration) bool {
	need := settled + hangFor
	if kind == killed {
		need = settled + killFor
		if f.begun >= first && f.forget {
			need += quarantine
		}
	}
	return now+need <= f.length
}

// place returns the index of the node that is next in order: nodes 2, 4 and so on, then 1, 3
// and so on.
func (f *faults) place() int {
	n := len(f.nodes)
	i, half := f.next%n, n/2
	if i < half {
		return 2*i + 1
	}
	return 2 * (i - half)
}

func (f *faults) minority() int { return (len(f.nodes) - 1) / 2 }

// out returns the number of nodes that are out.
func (f *faults) out() int {
	n := 0
	for _, s := range f.nodes {
		if s.out() != nil {
			n++
		}
	}
	return n
}
