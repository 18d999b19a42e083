//go:build sim

package redlatch_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/sim"
)

// TestSimMutations breaks one rule of the lock at a time. A simulation that
// does not notice is of no use.
func TestSimMutations(t *testing.T) {
	const limit = 300
	type finding struct {
		seeds   int
		verdict string
	}
	findings := make([]finding, sim.Mutations)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	t.Run("each", func(t *testing.T) {
		for m := sim.None + 1; m < sim.Mutations; m++ {
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				for seed := range limit {
					o := simulate(t, uint64(seed+1), m, false)
					if len(o.verdicts) > 0 {
						findings[m] = finding{seed + 1, o.verdicts[0]}
						return
					}
				}
				t.Errorf("%d worlds did not notice", limit)
			})
		}
	})
	var table strings.Builder
	for m := sim.None + 1; m < sim.Mutations; m++ {
		f := findings[m]
		rule, _, _ := strings.Cut(f.verdict, ":")
		t.Logf("%-40s found in world %3d: %s", m, f.seeds, rule)
	}
	_ = table
}
