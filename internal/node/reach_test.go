package node

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// However many goroutines note changes, one is told after the other, and the last that is told is how
// it is in the end.
func TestReachIsToldInOrder(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for range 200 {
		var telling atomic.Int32
		told := false
		r := &Reach{tell: func(why error) {
			if telling.Add(1) > 1 {
				t.Error("told twice at the same time")
			}
			if told == (why != nil) {
				t.Errorf("told %v again", why)
			}
			told = why != nil
			telling.Add(-1)
		}}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for k := range 20 {
					r.Note(map[bool]error{true: away}[(i+k)%2 == 0])
				}
			})
		}
		all.Wait()
		r.mu.Lock()
		if told != (r.why != nil) || r.away.Load() != told || r.telling {
			t.Errorf("told %t, and it is %v", told, r.why)
		}
		r.mu.Unlock()
	}
}
