package demo

import (
	"slices"
	"time"
)

// tally adds up the workers' reports. One goroutine uses it.
type tally struct {
	workers []workerTally // in the workers' order
	// acquisitions counts the turns with the lock, and updates the writes of the record.
	acquisitions, updates int
	// byOut counts the acquisitions while 0, 1, 2 and so on nodes were out.
	byOut []int
	// These are violations.
	overlaps, garbled, disorders counter
	// These are not: locks that were lost in time, and releases that no quorum confirmed.
	lost, unreleased int
	gaps             gaps
}

type workerTally struct {
	acquisitions int
	longestWait  time.Duration
}

// counter counts events of one sort, and keeps the description of the first one.
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

// newTally returns an empty tally for a race that begins at start.
func newTally(workers, nodes int, start time.Time) *tally {
	return &tally{
		workers: make([]workerTally, workers),
		byOut:   make([]int, nodes+1),
		gaps:    gaps{last: start.UnixNano()},
	}
}

// add adds a report of the worker with this index. out is how many nodes were out at its turn.
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

// longestWait returns the longest time that a worker waited for the lock, and the index of that
// worker.
func (t *tally) longestWait() (d time.Duration, worker int) {
	for i, w := range t.workers {
		if w.longestWait > d {
			d, worker = w.longestWait, i
		}
	}
	return d, worker
}

// gaps finds the longest time between an acquisition of any worker and the next one.
// Reports of different workers may arrive slightly out of order. So times are collected and
// sorted, and only the earlier half is used each time, which leaves room for late reports.
type gaps struct {
	last    int64 // the latest acquisition that was used, in ns since 1970
	longest time.Duration
	recent  []int64 // acquisitions that were not used yet
}

func (g *gaps) add(at int64) {
	const batch = 1024
	g.recent = append(g.recent, at)
	if len(g.recent) == batch {
		g.settle(batch / 2)
	}
}

// settle uses the n earliest times of recent and removes them.
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

// until returns the longest gap of a race that ended at end.
func (g *gaps) until(end time.Time) time.Duration {
	g.settle(len(g.recent))
	return max(g.longest, time.Duration(end.UnixNano()-g.last))
}
