package demo

import (
	"slices"
	"time"
)

// tally adds the workers' reports up. One goroutine uses it.
type tally struct {
	workers []workerTally // in the workers' order
	// acquisitions were had by the lock; updates are those that workers made.
	acquisitions, updates int
	// byOut counts the acquisitions by how many nodes were out.
	byOut []int
	// What must not be.
	overlaps, garbled, disorders counter
	// What may be, and is worth telling.
	lost, unreleased int
	gaps             gaps
}

type workerTally struct {
	acquisitions int
	longestWait  time.Duration
}

// counter counts something, and keeps the words of the first.
type counter struct {
	n     int
	first string
}

func (c *counter) add(text string) {
	if text == "" {
		return
	}
	if c.n == 0 {
		c.first = text
	}
	c.n++
}

// newTally is for a race that starts at the time start.
func newTally(workers, nodes int, start time.Time) *tally {
	return &tally{
		workers: make([]workerTally, workers),
		byOut:   make([]int, nodes+1),
		gaps:    gaps{last: start.UnixNano()},
	}
}

// add takes in a report of one worker, from 0; out nodes were out at its turn.
func (t *tally) add(worker int, r report, out int) {
	w := &t.workers[worker]
	w.longestWait = max(w.longestWait, r.Wait, r.Unserved)
	t.overlaps.add(r.Overlap)
	t.garbled.add(r.Garbled)
	t.disorders.add(r.Disorder)
	if r.Updated {
		t.updates++
	}
	if r.Lost {
		t.lost++
	}
	if r.Unreleased {
		t.unreleased++
	}
	if r.Locked {
		t.acquisitions++
		t.byOut[out]++
		t.gaps.add(r.Turn)
		w.acquisitions++
	}
}

// longestWait returns the longest that a worker waited for the lock, and which
// worker, from 0.
func (t *tally) longestWait() (d time.Duration, worker int) {
	for i, w := range t.workers {
		if w.longestWait > d {
			d, worker = w.longestWait, i
		}
	}
	return d, worker
}

// gaps finds the longest time between one acquisition and the next, whoever's.
// Reports of different workers come out of order by a little: times are put in
// order in batches, of which half stays for those that are late.
type gaps struct {
	last    int64 // ns since 1970
	longest time.Duration
	recent  []int64
}

func (g *gaps) add(at int64) {
	const batch = 1024
	g.recent = append(g.recent, at)
	if len(g.recent) == batch {
		g.settle(batch / 2)
	}
}

// settle takes the n earliest out of recent.
func (g *gaps) settle(n int) {
	slices.Sort(g.recent)
	for _, at := range g.recent[:n] {
		if at > g.last {
			g.longest = max(g.longest, time.Duration(at-g.last))
			g.last = at
		}
	}
	g.recent = slices.Delete(g.recent, 0, n)
}

// until returns the longest gap when the race ended at end.
func (g *gaps) until(end time.Time) time.Duration {
	g.settle(len(g.recent))
	return max(g.longest, time.Duration(end.UnixNano()-g.last))
}
