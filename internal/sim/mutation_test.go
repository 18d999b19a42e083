package sim_test

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/sim"
)

// TestSimMutations breaks one rule of the lock at a time. A simulation that
// does not notice is of no use.
func TestSimMutations(t *testing.T) {
	if testing.Short() || simWorlds < 1000 {
		t.Skip("many worlds")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400))
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
				for seed := range m.Within() {
					o := simulate(t, uint64(seed+1), m, false)
					if len(o.verdicts) > 0 {
						findings[m] = finding{seed + 1, o.verdicts[0]}
						if strings.HasPrefix(o.verdicts[0], "nothing is refused") {
							t.Errorf("the mutation itself is broken: %s", o.verdicts[0])
						}
						return
					}
				}
				t.Errorf("%d worlds did not notice", m.Within())
			})
		}
	})
	t.Logf("%-38s %6s  %s", "broken", "worlds", "what the judge said first")
	for m := sim.None + 1; m < sim.Mutations; m++ {
		rule, _, _ := strings.Cut(findings[m].verdict, ":")
		t.Logf("%-38s %2d of %3d  %s", m, findings[m].seeds, m.Within(), rule)
	}
}
