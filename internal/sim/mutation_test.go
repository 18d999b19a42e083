package sim_test

import (
	"os"
	"regexp"
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
	names := mutationConstants(t)
	findings := make([]finding, sim.Mutations)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	t.Run("each", func(t *testing.T) {
		for m := sim.None + 1; m < sim.Mutations; m++ {
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				if m.Survives() != "" {
					return
				}
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
	rules := rulesOf(t)
	t.Logf("%-28s %-38s %6s  %s", "rule", "broken", "worlds", "what the judge said first")
	for m := sim.None + 1; m < sim.Mutations; m++ {
		verdict, _, _ := strings.Cut(findings[m].verdict, ":")
		if m.Survives() != "" {
			verdict = "survives: " + m.Survives()
		}
		t.Logf("%-28s %-38s %4d of %4d  %s", rules[names[m]], m, findings[m].seeds, m.Within(), verdict)
	}
}

// mutationConstants are the names of the mutations in package sim, which docs/rules.md has.
func mutationConstants(t *testing.T) map[sim.Mutation]string {
	t.Helper()
	text, err := os.ReadFile("mutation.go")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[sim.Mutation]string)
	for _, found := range regexp.MustCompile(`(?m)^\t(\w+): +"([^"]+)",$`).FindAllStringSubmatch(string(text), -1) {
		if m, ok := sim.ParseMutation(found[2]); ok {
			names[m] = found[1]
		}
	}
	return names
}
