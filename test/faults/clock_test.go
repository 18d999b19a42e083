package faults

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The clocks of a minority of the servers are stepped forward, so that a lock ends there: one that all have granted goes on, and gets
// no second holder.
func TestClocksOfAMinorityAreStepped(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, n, redistest.Options{ClockShim: true})
			c := locktest.Config(redistest.URLs(nodes)...)
			one, two := locktest.Open(t, c), locktest.Open(t, c)
			held := locktest.TryLock(t, one, "job", redlatch.WithoutRenewal())
			locktest.AwaitOn(t, held, nodes...)
			for _, s := range nodes[:n/2] {
				if err := s.StepClock(2 * locktest.TTL); err != nil {
					t.Fatal(err)
				}
				locktest.AwaitValue(t, s, "job", "")
			}
			if _, err := locktest.TryInTime(t, two, "job"); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("another: %v, want ErrHeld", err)
			}
			locktest.Extend(t, held, locktest.TTL)
			locktest.AwaitOn(t, held, nodes...)
			locktest.Unlock(t, held)
		})
	}
}
