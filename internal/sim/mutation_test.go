package sim_test

import (
	"os"
	"regexp"
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
	type finding struct {
		world   uint64
		verdict string
	}
	binary := serialBuild(t)
	names := mutationConstants(t)
	findings := make([]finding, sim.Mutations)
	t.Run("each", func(t *testing.T) {
		for m := sim.None + 1; m < sim.Mutations; m++ {
			t.Run(m.String(), func(t *testing.T) {
				t.Parallel()
				if m.Survives() != "" {
					return
				}
				h := hunt{binary: binary, name: m.String(), mutation: m.String(), within: m.Within()}
				world, verdict, out, err := h.run(t)
				if verdict == "" {
					t.Errorf("%d worlds did not notice: %v\n%s", m.Within(), err, out)
				}
				if strings.HasPrefix(verdict, "nothing is refused") {
					t.Errorf("the mutation itself is broken: %s", verdict)
				}
				findings[m] = finding{world, verdict}
			})
		}
	})
	rules := rulesOf(t)
	t.Logf("%-28s %-38s %6s  %s", "rule", "broken", "world", "what the judge said first")
	for m := sim.None + 1; m < sim.Mutations; m++ {
		verdict := findings[m].verdict
		if m.Survives() != "" {
			verdict = "survives: " + m.Survives()
		}
		t.Logf("%-28s %-38s %4d of %4d  %s", rules[names[m]], m, findings[m].world, m.Within(), verdict)
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
