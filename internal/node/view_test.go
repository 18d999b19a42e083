package node

import (
	"testing"

	"github.com/redlatch/redlatch/internal/admission"
)

func mastersOf(owners ...string) (masters []master) {
	for i, id := range owners {
		masters = append(masters, master{id: id, held: admission.Slots{{First: uint16(10 * i), Last: uint16(10*i + 9)}}})
	}
	return masters
}

// A master has a slot where more than half of all masters say so, and it has answered itself.
func TestOpinions(t *testing.T) {
	t.Parallel()
	before, after := mastersOf("a", "b", "c"), mastersOf("d", "b", "c")
	for _, c := range []struct {
		what string
		said map[string]opinion
		run  string
		want bool
	}{
		{"all", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}, "c": {"run c", before}}, "run a", true},
		{"a majority", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}}, "run a", true},
		{"a minority", map[string]opinion{"a": {"run a", before}}, "run a", false},
		{"a majority names another", map[string]opinion{"a": {"run a", before}, "b": {"run b", after}, "c": {"run c", after}}, "run a", false},
		{"one names another", map[string]opinion{"a": {"run a", before}, "b": {"run b", after}, "c": {"run c", before}}, "run a", true},
		{"it has not answered", map[string]opinion{"b": {"run b", before}, "c": {"run c", before}}, "run a", false},
		{"it has restarted since", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}, "c": {"run c", before}}, "an earlier run", false},
		{"the new one", map[string]opinion{"d": {"run d", after}, "b": {"run b", after}}, "run d", true},
		{"half of four", map[string]opinion{"a": {"run a", mastersOf("a", "b", "c", "d")}, "b": {"run b", mastersOf("a", "b", "c", "d")}}, "run a", false},
	} {
		if got := (&opinions{of: c.said}).owner(5) == c.run; got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
	if run := (&opinions{of: map[string]opinion{"a": {"run a", before}, "b": {"run b", before}}}).owner(77); run != "" {
		t.Errorf("a slot that nobody has is at %s", run)
	}
	if run := (*opinions)(nil).owner(5); run != "" {
		t.Errorf("nobody was asked, and it is at %s", run)
	}
}
