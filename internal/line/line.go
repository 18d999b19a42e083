// Package line has a process wait for locks in the order in which it came. The
// line for a lock lives on one node, the arbiter, and holds one place a process.
// Fairness needs that one node, safety does not: a waiter whose turn it is only
// makes an attempt like any other.
//
// Whoever releases the lock has the arbiter call the first in line. Behind every
// message there is a timer, so that one that is lost costs time and nothing else.
package line

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// Keeper is a node that can keep a line. Its methods wait for the node's answer
// or for ctx.
type Keeper interface {
	Name() string
	Stand(ctx context.Context, c vote.Claim, watch bool) vote.Standing
	Leave(ctx context.Context, record, waiter string)
	Waits(ctx context.Context, record string) (somebody bool, err error)
}

// Options says how a Line waits.
type Options struct {
	// Waiter is the name that the nodes call this process by.
	Waiter string
	// Timeout is how long a node is waited for in one step.
	Timeout time.Duration
	// Foreign reports that a holder does not call the first in line when it
	// releases.
	Foreign func(holder string) bool
	// Forgo removes the records that from left on nodes for a waiter of this process
	// that has no use for them. It does not block.
	Forgo func(record, from string)
	// Draw returns a random duration below d, which is positive.
	Draw func(d time.Duration) time.Duration
}

// Line is one process's part in the lines for all locks. It is safe for
// concurrent use.
type Line struct {
	options Options
	keepers []Keeper

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// places has the records that this process stands in line for, and joined
	// counts the places it has had.
	places map[string]*Place
	joined uint64
	closed bool
	// background is what Close waits for.
	background sync.WaitGroup
}

// New returns a Line with no keepers.
func New(o Options) *Line {
	return &Line{options: o, places: make(map[string]*Place)}
}

// Use names the nodes that may keep a line, before the first place is taken.
func (l *Line) Use(keepers []Keeper) { l.keepers = keepers }

// Close waits for the places that are being left. None is left any more.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.background.Wait()
}

// Join takes a place in the line for the claim's record, in which this process
// has none. Nothing is sent before Await.
func (l *Line) Join(claim vote.Claim) *Place {
	p := &Place{line: l, claim: claim, order: l.order(claim.Record), called: make(chan news, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.joined++
	// No two places have one name: what is sent of one that was left may arrive
	// after the next was taken.
	p.waiter = l.options.Waiter + "/" + strconv.FormatUint(l.joined, 36)
	p.claim.Place.Waiter = p.waiter
	l.places[claim.Record] = p
	return p
}

// Arbiter is the index of the node that keeps the record's line while it can.
func (l *Line) Arbiter(record string) int { return l.order(record)[0] }

// order is the nodes that may keep the record's line, the arbiter first: the same
// in every process that names the nodes alike, and another for every record
// (rendezvous hashing: Thaler and Ravishankar, 1998).
func (l *Line) order(record string) []int {
	weights := make([]uint64, len(l.keepers))
	order := make([]int, len(l.keepers))
	for i, k := range l.keepers {
		h := fnv.New64a()
		h.Write([]byte(record + "\x00" + k.Name()))
		order[i], weights[i] = i, mix(h.Sum64())
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	return order
}

// mix spreads what the last bytes of FNV's input did over all bits, without which
// one node would come first for half of the records (MurmurHash3's finalizer).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Called tells the line that node voter has called a waiter of this process. It
// does not block.
func (l *Line) Called(voter int, c vote.Call) {
	l.mu.Lock()
	p := l.places[c.Record]
	ours := p != nil && p.waiter == c.Waiter
	if ours {
		p.signal(news{turn: true, from: c.From})
	}
	l.mu.Unlock()
	if !ours {
		// It does not wait any more, and the others should not wait for it.
		l.leave(voter, c)
	}
}

// Changed tells the line to look after record, or after all that it stands in
// line for when record is "". It does not block.
func (l *Line) Changed(record string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[record]; p != nil {
		p.signal(news{})
		return
	}
	if record == "" {
		for _, p := range l.places {
			p.signal(news{})
		}
	}
}

// Look asks whether anybody stands in line for record, in the background, and tells; what
// no node can say is taken for yes. After Close nothing is asked, nor told.
func (l *Line) Look(record string, told func(somebody bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.background.Go(func() {
		somebody := true
		// The first that answers need not be the one that keeps the line.
		for _, i := range l.order(record) {
			ctx, cancel := context.WithTimeout(context.Background(), l.options.Timeout)
			waits, err := l.keepers[i].Waits(ctx, record)
			cancel()
			if err != nil {
				continue
			}
			if somebody = waits; somebody {
				break
			}
		}
		told(somebody)
	})
}

// leave gives a place up, and what was left to it, in the background.
func (l *Line) leave(voter int, c vote.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return // it lapses
	}
	l.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.options.Timeout)
		defer cancel()
		l.keepers[voter].Leave(ctx, c.Record, c.Waiter)
		if c.From != "" {
			l.options.Forgo(c.Record, c.From)
		}
	})
}
