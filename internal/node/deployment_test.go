package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
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

// resettable is a connection to a server that notes its quarantine.
type resettable struct {
	moving
	note string
}

func (c *resettable) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if len(args) > 8 && args[1] == script.Quarantine.Text {
		c.note = args[8]
	}
	return c.moving.Do(ctx, args...)
}

// A reset keeps a node out for as long as a lock may last that was given away under any settings that are recorded,
// there or, since the node may have lost its own, elsewhere.
func TestResetWaitsForTheLongest(t *testing.T) {
	t.Parallel()
	record := func(ttl time.Duration) *admission.Record {
		return &admission.Record{Nodes: map[string]string{"n": "", "o": ""}, MaxTTLMS: ttl.Milliseconds()}
	}
	for _, c := range []struct{ ours, own, other time.Duration }{{0, 1, 2}, {0, 2, 1}, {2, 0, 1}} {
		hours := func(n time.Duration) time.Duration { return (n + 1) * time.Hour }
		conn := &resettable{moving: moving{records: map[int]string{0: record(hours(c.own)).Text()}}}
		census := NewCensus([]string{"n", "o"})
		census.join(1, func(context.Context) (*admission.Record, error) { return record(hours(c.other)), nil })
		n := New(conn, Options{Name: "n", Census: census, Deployment: Deployment{Name: "d", MaxTTL: hours(c.ours)},
			ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(n.Close)
		if err := n.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		note, _ := admission.ParseNote(conn.note)
		if want := admission.NewNote(note.Server, 1, admission.Agreement{MaxTTL: hours(2)}.Quarantine()); note != want {
			t.Errorf("%+v: %q, not %q", c, conn.note, want.Text())
		}
	}
}

// What another node has recorded speaks for a client only if it is the client's agreement, by names that are known to
// mean the same nodes.
func TestCountOfRecords(t *testing.T) {
	t.Parallel()
	d := Deployment{Name: "d", MaxTTL: time.Second}
	census := NewCensus([]string{"a", "b"})
	census.report(0, "r1")
	n := New(new(moving), Options{Name: "a", Census: census, Deployment: d, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(n.Close)
	for what, c := range map[string]struct {
		record *admission.Record
		want   admission.Others
		other  bool
	}{
		"nothing":                  {nil, admission.Others{None: 1}, false},
		"the same":                 {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 1000}, admission.Others{Same: 1}, false},
		"another MaxTTL":           {&admission.Record{Nodes: map[string]string{"a": "", "b": ""}, MaxTTLMS: 2000}, admission.Others{}, true},
		"other nodes":              {&admission.Record{Nodes: map[string]string{"a": "", "c": "", "e": ""}, MaxTTLMS: 1000}, admission.Others{}, true},
		"names that are not known": {&admission.Record{Nodes: map[string]string{"x": "r1", "y": "r2"}, MaxTTLMS: 1000}, admission.Others{Unread: 1}, false},
	} {
		var got admission.Others
		n.count(&got, d.agreement([]string{"a", "b"}), 1, c.record)
		other := got.Other
		if got.Other = nil; got != c.want || (other != nil) != c.other || other != nil && other.Node != "b" {
			t.Errorf("%s: %+v, %v", what, got, other)
		}
	}
}
