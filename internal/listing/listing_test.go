package listing

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A lock comes before the permits of the same name, in each listing.
func TestOrder(t *testing.T) {
	t.Parallel()
	found := map[ID]Found{
		{Name: "pool"}:                         {Holder: "a"},
		{Name: "pool", Permit: true}:           {Holder: "b"},
		{Name: "pool", Permit: true, Slot: 10}: {Holder: "c"},
		{Name: "pool", Permit: true, Slot: 9}:  {Holder: "d"},
	}
	for range 100 { // a map has no order
		var order strings.Builder
		for _, lock := range Merge([]map[ID]Found{found}) {
			order.WriteString(lock.Holder)
		}
		if order.String() != "abdc" {
			t.Fatalf("%q", order.String())
		}
	}
}

// A node that keeps a key for ever keeps it for longer than any other.
func TestKeptForEver(t *testing.T) {
	t.Parallel()
	const forever, s = -time.Millisecond, time.Second
	for _, tt := range []struct {
		left []time.Duration
		want time.Duration
	}{
		{[]time.Duration{forever}, forever},
		{[]time.Duration{forever, 5 * s}, 5 * s},
		{[]time.Duration{forever, 5 * s, 6 * s}, 6 * s},
		{[]time.Duration{forever, forever, 5 * s}, forever},
	} {
		on := make([]map[ID]Found, 3)
		for i, left := range tt.left {
			on[i] = map[ID]Found{{Name: "job"}: {Holder: "a", Left: left}}
		}
		if got := Merge(on)[0].Left; got != tt.want && (got >= 0 || tt.want >= 0) {
			t.Errorf("%v is kept for %v, want %v", tt.left, got, tt.want)
		}
	}
}

// The holder is who has the key on most nodes, of those that have one, and the longest queue comes first: one that moves from one to
// another is named once.
func TestMerge(t *testing.T) {
	t.Parallel()
	id := ID{Name: "name"}
	on := []map[ID]Found{
		{id: {Holder: "a", Left: 1, Queue: []string{"4"}}},
		{id: {Queue: []string{"1", "2", "3"}}},
		{id: {Queue: []string{"-2", "5"}}},
		{id: {Holder: "b", Left: 3}},
		{id: {Holder: "b", Left: 2}},
		{id: {}},
		nil,
	}
	got := Merge(on)
	if len(got) != 1 || got[0].Holder != "b" || got[0].Nodes != 2 || got[0].Left != 2 || !slices.Equal(got[0].Queue, []string{"1", "2", "3", "5", "4"}) {
		t.Errorf("%+v", got)
	}
}

// Of holders on as many nodes, always the same is named; of queues as long, the first node's comes first; and a reader has left what a
// quorum keeps.
func TestMergeOfEquals(t *testing.T) {
	t.Parallel()
	id := ID{Name: "name"}
	var on []map[ID]Found
	var want []string
	for i := range 20 {
		want = append(want, string(rune('a'+i)))
		on = append(on, map[ID]Found{id: {Holder: want[i], Queue: want[i : i+1], Readers: map[string]time.Duration{"r": time.Duration(i + 1)}}})
	}
	for range 20 { // a map has no order
		if got := Merge(on)[0]; got.Holder != "a" || !slices.Equal(got.Queue, want) || !slices.Equal(got.Readers, []Reader{{"r", 10, 20}}) {
			t.Fatalf("%+v", got)
		}
	}
}

// A slash in a name is a character like any other for a pattern, and what surrounds a name is none of it.
func TestNames(t *testing.T) {
	t.Parallel()
	got := Locks{Before: "lock:", After: ":x"}.Names([]string{"lock:a/b:x", "lock:ab", "a/b:x", "lock:b:x"}, "a*")
	if !slices.Equal(got, []string{"a/b"}) {
		t.Errorf("%q", got)
	}
}
