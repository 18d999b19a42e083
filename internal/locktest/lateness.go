package locktest

import (
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Lateness is how late this process and servers have been, on a machine that has more to do than it
// can. A test that a waiter gets its turn excuses what happens while its turn, script.Grace, is nearly
// over before anything runs.
type Lateness struct {
	mu    sync.Mutex // guards what follows
	worst time.Duration
	began time.Time // of the round under way
}

// lateEach is the pause between two rounds.
const lateEach = 5 * time.Millisecond

// WatchLateness begins to watch, until the test is over.
func WatchLateness(t *testing.T, servers ...*redistest.Server) *Lateness {
	l := &Lateness{began: time.Now()}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-time.After(lateEach):
			case <-over:
				return
			}
			for _, s := range servers {
				s.Do("PING") // one that is down has answered, too
			}
			l.round()
		}
	}()
	t.Cleanup(func() { close(over); <-done })
	return l
}

func (l *Lateness) round() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.worst = max(l.worst, now.Sub(l.began))
	l.began = now
}

// Take returns how long the longest round since the last Take took: the pause, and an answer of each
// server.
func (l *Lateness) Take() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	worst := max(l.worst, time.Since(l.began))
	l.worst = 0
	return worst
}

// Soon fails the test if each of 20 tries took longer than most: a busy machine may be late, but not each
// time. try returns how long try n took.
func Soon(t *testing.T, what string, most time.Duration, try func(n int) time.Duration) {
	t.Helper()
	soonest := try(0)
	for n := 1; n < 20 && soonest > most; n++ {
		soonest = min(soonest, try(n))
	}
	if soonest > most {
		t.Errorf("%s: it took %v, want %v at most", what, soonest, most)
	}
}
