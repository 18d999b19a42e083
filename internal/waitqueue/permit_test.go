package waitqueue

import (
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
)

// The next caller of this process joins the queue for a permit if others waited when the last one got its own, and not if that
// one was told that nobody does any more.
func TestPermitAfterOthersWereSeenWaiting(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(1)
			q := newQueue(t, "p", nodes, nil)
			q.options.Life = t.Context()
			e := quorum.New([]quorum.Voter{&says{waiting: others}}, clock.System, timeout)
			defer e.Close()
			got := make(chan error)
			acquire := func(before func()) {
				c := &winning{ctx: t.Context(), engine: e, before: before, held: func(*Holder) {}}
				go func() { got <- q.WaitPermit(t.Context(), c) }()
				synctest.Wait()
			}
			q.MarkContended(key) // so that the first joins
			acquire(func() {})
			if !others {
				q.MarkContended(key) // they were seen, and have gone when it is asked
			}
			asked := -1
			acquire(func() { asked = nodes[0].asked() })
			for range 2 {
				if err := <-got; err != nil {
					t.Error(err)
				}
			}
			settle()
			if want := map[bool]int{true: 2, false: 1}[others]; asked != want {
				t.Errorf("others wait %t: the node was asked for %d places, want %d", others, asked, want)
			}
		})
	}
}
