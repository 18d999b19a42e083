package node

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/admission"
)

// Two clients that name their nodes otherwise have the same nodes only where each of them is known, by its run, to be
// one that is recorded. Else their quorums might not overlap.
func TestNodesUnderOtherNames(t *testing.T) {
	t.Parallel()
	record := &admission.Record{Nodes: map[string]string{"a": "r1", "b": "r2", "c": "r3"}}
	for what, c := range map[string]struct {
		ours, want string // the nodes, with the runs behind ours; the names, "" for not known yet
	}{
		"the same names":              {"a=r1 b=r2 c=r3", "a b c"},
		"the same names, other runs":  {"a=r7 b= c=r9", "a b c"},
		"the same servers":            {"x=r3 y=r1 z=r2", "a b c"},
		"one is not reached yet":      {"x=r3 y= z=r2", ""},
		"none is reached yet":         {"x= y= z=", ""},
		"one is another":              {"x=r3 y=r1 z=r4", "x y z"},
		"one is another, one unknown": {"x=r3 y= z=r4", "x y z"},
		"two are one":                 {"x=r3 y=r1 z=r1", "x y z"},
		"one name is the same":        {"a=r1 y=r4 z=r5", "a y z"},
		"one less":                    {"x=r3 y=r1", "x y"},
		"one more":                    {"w=r4 x=r3 y=r1 z=r2", "w x y z"},
		"one more, not reached":       {"w= x=r3 y=r1 z=r2", "w x y z"},
	} {
		var names, runs []string
		for node := range strings.FieldsSeq(c.ours) {
			name, run, _ := strings.Cut(node, "=")
			names, runs = append(names, name), append(runs, run)
		}
		census := NewCensus(names)
		for i, run := range runs {
			census.report(i, run)
		}
		got, err := Deployment{}.named(record, census)
		if want := strings.Fields(c.want); !slices.Equal(got, want) || (c.want == "") != errors.Is(err, ErrUnseen) {
			t.Errorf("%s: %q, %v, not %q", what, got, err, want)
		}
		if got, err := (Deployment{}).named(nil, census); err != nil || !slices.Equal(got, names) {
			t.Errorf("%s, and nothing is recorded: %q, %v", what, got, err)
		}
	}
}

// A record keeps its names, and the last run that was seen behind each.
func TestRunsOfARecord(t *testing.T) {
	t.Parallel()
	got := mergeRuns(map[string]string{"a": "r1", "b": "r2", "c": ""}, map[string]string{"a": "r4", "b": "", "x": "r5"})
	if want := map[string]string{"a": "r4", "b": "r2", "c": ""}; !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
