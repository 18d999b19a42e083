package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/vote"
)

// witness sees every acquisition of one name.
type witness struct {
	t *testing.T

	mu    sync.Mutex // guards what follows
	lease *Lease     // the last that was acquired
	given bool       // its holder has said that it does not rely on it any more
	count int
}

// acquired checks that nobody else relies on the lock, and that the token grew.
func (w *witness) acquired(l *Lease, now clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	if w.lease != nil {
		if !w.given && !now.Reached(w.lease.Until()) {
			w.t.Errorf("two holders: token %d is valid for %v still, and %d was acquired", w.lease.Token(), now.Until(w.lease.Until()), l.Token())
		}
		if l.Token() <= w.lease.Token() {
			w.t.Errorf("token %d follows %d", l.Token(), w.lease.Token())
		}
	}
	w.lease, w.given = l, false
}

func (w *witness) releasing(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease == l {
		w.given = true
	}
}

// Contenders on a network that delays, loses and stops at random: never two
// holders, tokens that grow, and nothing left in the end.
func TestContentionAtRandom(t *testing.T) {
	t.Parallel()
	base, runs := seed.Of(t), uint64(25)
	if testing.Short() {
		runs = 8
	}
	for run := range runs {
		if t.Failed() {
			t.Logf("it was run %d", run-1)
			return
		}
		synctest.Test(t, func(t *testing.T) { contend(t, rand.New(rand.NewPCG(base, run))) })
	}
}

func contend(t *testing.T, rng *rand.Rand) {
	nodes := servers(t, 3+rng.IntN(3))
	w := &witness{t: t}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var group sync.WaitGroup
	weather := rand.New(rand.NewPCG(rng.Uint64(), 0))
	group.Go(func() { trouble(ctx, nodes, weather) })
	for i := range 3 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		e := newEngine(t, nodes)
		group.Go(func() {
			for try := 0; ctx.Err() == nil; try++ {
				contender(ctx, w, e, fmt.Sprintf("%d.%d", i, try), own)
			}
		})
	}
	group.Wait()
	if w.count < 10 {
		t.Errorf("%d acquisitions in 20 s", w.count)
	}
	// The longest TTL is over by then, and no release came too late for its own.
	time.Sleep(2 * time.Second)
	for i, r := range holders(nodes) {
		if r != "" {
			t.Errorf("node %d has the key %q", i, r)
		}
	}
}

// contender makes one attempt, and if it holds, works, extends and releases or
// walks away, all at random.
func contender(ctx context.Context, w *witness, e *Engine, id string, rng *rand.Rand) {
	ttl := time.Duration(100+rng.IntN(400)) * time.Millisecond
	attempt, cancel := ctx, context.CancelFunc(func() {})
	if rng.IntN(4) == 0 {
		attempt, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(40_000))*time.Microsecond)
	}
	lease, _ := e.Acquire(attempt, vote.Acquire{Key: "x", ID: id, TTL: ttl, Proposed: uint64(time.Now().UnixMicro())})
	cancel()
	if lease == nil {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		return
	}
	w.acquired(lease, e.clock.Now())
	for range rng.IntN(6) {
		time.Sleep(time.Duration(rng.IntN(int(ttl / 2))))
		if end, _ := lease.Extend(ctx, ttl); end == Lapsed || lease.Impossible() {
			break
		}
	}
	if rng.IntN(5) == 0 {
		return // its keys expire
	}
	w.releasing(lease)
	lease.Release()
}

// trouble changes the network, a minority of nodes badly.
func trouble(ctx context.Context, nodes []*server, rng *rand.Rand) {
	for ctx.Err() == nil {
		s := nodes[rng.IntN(len(nodes))]
		switch rng.IntN(4) {
		case 0:
			s.set(func(s *server) {
				s.there = time.Duration(rng.IntN(30_000)) * time.Microsecond
				s.back = time.Duration(rng.IntN(30_000)) * time.Microsecond
			})
		case 1:
			s.set(func(s *server) { s.lost, s.deaf = rng.IntN(2) == 0, rng.IntN(2) == 0 })
		case 2:
			s.set(func(s *server) { s.down = true })
		case 3:
			thaw := s.freeze()
			time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
			thaw()
		}
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		s.set(func(s *server) { s.lost, s.deaf, s.down = false, false, false })
	}
}
