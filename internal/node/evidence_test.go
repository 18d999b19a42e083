package node

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
)

// What another node has recorded speaks for a client only if it is the client's agreement, with the
// same nodes.
func TestCountOfRecords(t *testing.T) {
	t.Parallel()
	ours := admission.Agreement{Deployment: "d", Nodes: []string{"a", "b"}, MaxTTL: time.Second}
	n := New(new(moving), Options{Name: "a", Census: NewCensus(ours.Nodes), Agreement: ours, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(n.Close)
	for what, c := range map[string]struct {
		record *admission.Record
		want   admission.Others
		other  bool
	}{
		"nothing":        {nil, admission.Others{None: 1}, false},
		"the same":       {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 1000}, admission.Others{Same: 1}, false},
		"another MaxTTL": {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 2000}, admission.Others{}, true},
		"other nodes":    {&admission.Record{Nodes: map[string]string{"a": "", "c": "", "e": ""}, MaxTTLMS: 1000}, admission.Others{}, true},
		"other names":    {&admission.Record{Nodes: map[string]string{"x": "r1", "y": "r2"}, MaxTTLMS: 1000}, admission.Others{}, true},
	} {
		var got admission.Others
		n.count(&got, ours, 1, c.record)
		other := got.Differing
		if got.Differing = nil; got != c.want || (other != nil) != c.other || other != nil && other.Node != "b" {
			t.Errorf("%s: %+v, %v", what, got, other)
		}
	}
}
