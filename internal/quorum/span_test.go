package quorum

import (
	"context"
	"sync"
	"testing"
)

// Whoever waits for a span learns of its end, however the two meet, and what follows it
// is called once, unless it was stopped before.
func TestSpanEnds(t *testing.T) {
	t.Parallel()
	for range 2000 {
		s := new(span)
		var all sync.WaitGroup
		all.Go(s.end)
		for range 2 {
			all.Go(func() { <-s.Done() })
			all.Go(func() {
				called := make(chan struct{})
				if !s.AfterFunc(func() { close(called) })() {
					<-called
				}
			})
			all.Go(func() {
				ctx, cancel := context.WithCancel(s)
				defer cancel()
				<-ctx.Done()
			})
		}
		all.Wait()
		if s.Err() == nil {
			t.Fatal("it has ended and says nothing")
		}
	}
}
