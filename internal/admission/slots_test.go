package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	s := Slots{{0, 9, 100}, {10, 10, 200}, {20, 29, 300}}
	for slot, want := range map[uint16]int64{0: 100, 9: 100, 10: 200, 20: 300, 29: 300} {
		if since, ok := s.Since(slot); !ok || since != want {
			t.Errorf("slot %d: since %d, %t, want %d", slot, since, ok, want)
		}
	}
	for _, slot := range []uint16{11, 19, 30, 16383} {
		if since, ok := s.Since(slot); ok {
			t.Errorf("slot %d: since %d, want none", slot, since)
		}
	}
	held := Slots{{First: 5, Last: 12}, {First: 25, Last: 31}}
	for _, c := range []struct {
		now  int64
		want Slots
	}{
		{400, Slots{{5, 9, 100}, {10, 10, 200}, {11, 12, 400}, {25, 29, 300}, {30, 31, 400}}},
		{250, Slots{{5, 9, 100}, {10, 10, 200}, {11, 12, 250}, {25, 31, 250}}}, // 300 is to come
	} {
		if got := held.After(s, c.now); !slices.Equal(got, c.want) {
			t.Errorf("at %d: %v, want %v", c.now, got, c.want)
		}
	}
	if got := held.After(nil, 7); !slices.Equal(got, Slots{{5, 12, 7}, {25, 31, 7}}) {
		t.Errorf("new: %v", got)
	}
}

func TestRecordOfSlots(t *testing.T) {
	t.Parallel()
	whole := Record{Nodes: map[string]string{"c": ""}, MaxTTLMS: 1000, Epoch: 7, Slots: Slots{{0, 5460, 5}, {16383, 16383, 0}}}
	if r, err := ParseRecord("k", whole.Text()); err != nil || r.Epoch != 7 || !slices.Equal(r.Slots, whole.Slots) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []Slots{{{5, 4, 0}}, {{0, 16384, 0}}, {{0, 5, 0}, {5, 6, 0}}, {{6, 7, 0}, {0, 5, 0}}, {{0, 5, -1}}} {
		r := whole
		r.Slots = bad
		if _, err := ParseRecord("k", r.Text()); err == nil {
			text, _ := json.Marshal(bad)
			t.Errorf("%s is taken for a record's slots", text)
		}
	}
}

func TestBroughtFrom(t *testing.T) {
	t.Parallel()
	const started, recorded, written = testNow - 1000, testNow - 100, testNow - 50
	a := agreementOf(Agreement{})
	source := Server{Run: text(7), ReplicationID: text(8)}
	key := func(agreement string, s Server, at int64) string {
		return fmt.Sprintf("%s %s %s %016d", agreement, s.Run, s.ReplicationID, at*1_000_000)
	}
	pure := Evidence{Server: testServer, Now: testNow, Uptime: (testNow - started) * time.Second}
	promoted := pure
	promoted.Promoted, promoted.Received = true, 100
	known := promoted
	known.Record = &Record{Server: known.Server, Since: recorded}
	another := promoted
	another.Record = &Record{Server: Server{Run: testServer.Run, ReplicationID: text(9)}, Since: recorded}
	for _, c := range []struct {
		what  string
		e     Evidence
		key   string
		other Server
		want  bool
	}{
		{"as it was", pure, key(a.ID(), source, written), source, true},
		{"from before the server's start", pure, key(a.ID(), source, started-5), source, false},
		{"of another agreement", pure, key(agreementOf(Agreement{MaxTTL: time.Second}).ID(), source, written), source, false},
		{"none", pure, "", source, false},
		{"its own", pure, key(a.ID(), testServer, written), testServer, false},
		{"from a server that restarted", pure, key(a.ID(), source, written), Server{Run: text(6), ReplicationID: text(8)}, false},
		{"from a server that was promoted since", pure, key(a.ID(), source, written), Server{Run: text(7), ReplicationID: text(6)}, false},
		{"to a server that was promoted, nobody knows when", promoted, key(a.ID(), source, written), source, false},
		{"to a server that was promoted before", known, key(a.ID(), source, written), source, true},
		{"to a server that may have been promoted later", known, key(a.ID(), source, recorded), source, false},
		{"to a server that was promoted again", another, key(a.ID(), source, written), source, false},
	} {
		if got := c.e.BroughtFrom(a, c.key, c.other); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}
