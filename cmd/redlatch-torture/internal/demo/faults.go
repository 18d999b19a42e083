package demo

import "time"

// How long nodes are left alone and taken away.
const (
	calm    = 300 * time.Millisecond // before the first fault
	between = 300 * time.Millisecond // from the beginning of one of the first to that of the next
	later   = 2 * time.Second        // the same, of those after them
	killFor = 400 * time.Millisecond
	hangFor = 800 * time.Millisecond
	// settled is how long after the end of its last outage a node votes again
	// for sure, if it is not kept out.
	settled = 300 * time.Millisecond
	// quarantine is about how long a node stays out that came back empty.
	quarantine = ttl + 5*time.Second
)

// first is how many faults a run has as soon as it can, however short it is.
const first = 3

// faults chooses which node to take out next, and when.
type faults struct {
	length time.Duration // of the race
	nodes  []*story
	forget bool // they come back empty, and are kept out
	next   int  // place in the order of nodes
	begun  int
	last   time.Duration // when the latest began
}

// choose returns the node that is to be taken out now, if any is, and how. At
// any time a minority is out at most. The first faults, two kills and a
// hang, begin as soon as they can; later ones only if they can be over, with
// the quarantine, before the race is.
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
		kind = hung // which takes less
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

// fits reports whether a fault that begins now ends in time.
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

// place goes through the nodes: every second one, then the others.
func (f *faults) place() int {
	n := len(f.nodes)
	i, half := f.next%n, n/2
	if i < half {
		return 2*i + 1
	}
	return 2 * (i - half)
}

func (f *faults) minority() int { return (len(f.nodes) - 1) / 2 }

func (f *faults) out() int {
	n := 0
	for _, s := range f.nodes {
		if s.out() != nil {
			n++
		}
	}
	return n
}
