package node

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
		err    error
		want   admission.Others
		other  bool
	}{
		"nothing":           {nil, nil, admission.Others{None: 1}, false},
		"the same":          {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 1000}, nil, admission.Others{Same: 1, Longest: time.Second}, false},
		"of a change":       {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 1000, FormerMS: 5000}, nil, admission.Others{Same: 1, Longest: 5 * time.Second}, false},
		"another MaxTTL":    {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 2000}, nil, admission.Others{}, true},
		"other nodes":       {&admission.Record{Nodes: map[string]string{"a": "", "c": "", "e": ""}, MaxTTLMS: 1000}, nil, admission.Others{}, true},
		"other names":       {&admission.Record{Nodes: map[string]string{"x": "r1", "y": "r2"}, MaxTTLMS: 1000}, nil, admission.Others{}, true},
		"a later version's": {nil, fmt.Errorf("x: %w", admission.ErrLater), admission.Others{}, true},
		"no answer":         {nil, errors.New("x"), admission.Others{}, false},
	} {
		var got admission.Others
		n.count(&got, ours, 1, c.record, c.err)
		other := got.Differing
		node := "b"
		if d, ok := errors.AsType[*admission.DisagreementError](other); ok {
			node = d.Node
		}
		if got.Differing = nil; got != c.want || (other != nil) != c.other || node != "b" || other != nil && !strings.Contains(other.Error(), "on b") {
			t.Errorf("%s: %+v, %v", what, got, other)
		}
	}
}
