package admission

import (
	"encoding/json"
	"errors"
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

// What a record says anew: since when the server is the master that it is, and since when it has each slot.
func TestRenew(t *testing.T) {
	t.Parallel()
	const since = testNow - 500
	for what, c := range map[string]struct {
		change  func(*Evidence)
		changed bool
		since   int64
		slots   Slots
	}{
		"nothing new":        {func(*Evidence) {}, false, since, Slots{{0, 4, 7}, {5, 9, testNow - 5}}},
		"its first replica":  {func(e *Evidence) { e.ReplicationID = otherRepl }, true, since, Slots{{0, 4, 7}, {5, 9, testNow - 5}}},
		"it took slots over": {func(e *Evidence) { e.Shard.Epoch++ }, true, since, Slots{{0, 9, testNow}}},
		"a slot is gone":     {func(e *Evidence) { e.Shard.Held[0].Last-- }, true, since, Slots{{0, 4, 7}, {5, 8, testNow - 5}}},
		"a slot has come":    {func(e *Evidence) { e.Shard.Held[0].Last++ }, true, since, Slots{{0, 4, 7}, {5, 9, testNow - 5}, {10, 10, testNow}}},
		"another run":        {func(e *Evidence) { e.Run = otherRun }, true, testNow, Slots{{0, 9, testNow}}},
		"no record":          {func(e *Evidence) { e.Record = nil }, true, testNow, Slots{{0, 9, testNow}}},
		"it was flushed":     {func(e *Evidence) { e.Flushes = 1 }, true, testNow, Slots{{0, 4, 7}, {5, 9, testNow - 5}}},
		"somebody vouches":   {func(e *Evidence) { e.Vouched = true }, true, since, Slots{{0, 9, 0}}},
		"somebody vouches again, as it took slots over": {
			func(e *Evidence) { e.Vouched, e.Record.Slots, e.Shard.Epoch = true, Slots{{0, 9, 0}}, 4 }, true, since, Slots{{0, 9, 0}},
		},
	} {
		e := Evidence{Server: testServer, Now: testNow, Shard: &Shard{Epoch: 3, Held: Slots{{First: 0, Last: 9}}},
			Record: &Record{Server: testServer, Since: since, Epoch: 3, Slots: Slots{{0, 4, 7}, {5, 9, testNow - 5}}}}
		c.change(&e)
		var r Record
		changed := e.Renew(&r)
		if changed != c.changed || r.Since != c.since || !slices.Equal(r.Slots, c.slots) || r.Server != e.Server || r.Epoch != e.Shard.Epoch {
			t.Errorf("%s: %t, %+v", what, changed, r)
		}
	}
}

// A slot votes when its master has been known to have it for as long as the quarantine, or when it was brought.
func TestDecideSlot(t *testing.T) {
	t.Parallel()
	a := agreementOf(Agreement{})
	d := seconds(a.Quarantine())
	for what, c := range map[string]struct {
		since   int64
		brought bool
		outcome Outcome
		left    time.Duration
	}{
		"for long enough":     {testNow - d, false, Admit, 0},
		"for a second less":   {testNow - d + 1, false, Wait, time.Second},
		"just now":            {testNow, false, Wait, time.Duration(d) * time.Second},
		"brought":             {testNow, true, Admit, 0},
		"from later on":       {testNow + 1, false, Begin, a.Quarantine()},
		"from the far future": {1 << 34, false, Begin, a.Quarantine()},
	} {
		r := recordOf(a)
		r.Slots = Slots{{5, 5, c.since}}
		e := Evidence{Server: testServer, Now: testNow, Record: r, Shard: &Shard{Slot: 5, Held: Slots{{First: 5, Last: 5}}, Brought: c.brought, Masters: 1}}
		got := Decide(a, e)
		var left time.Duration
		if wait, ok := errors.AsType[*WaitError](got.Err); ok {
			left = wait.Left
		}
		if got.Outcome != c.outcome || left != c.left {
			t.Errorf("%s: outcome %d, %v", what, got.Outcome, got.Err)
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
	long := pure
	long.Uptime = 100_000 * time.Second
	promoted := pure
	promoted.Promoted, promoted.Received = true, 100
	known := promoted
	known.Record = &Record{Server: known.Server, Since: recorded}
	flushed, outlived := known, known
	flushed.Flushed, flushed.Flushes = true, 1
	flushed.Record = &Record{Server: known.Server, Since: recorded, Flushes: 1}
	outlived.Flushed, outlived.Flushes = true, 1
	received, forgot := pure, pure
	received.Received, forgot.Promoted = 100, true
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
		{"to a server that was promoted, by what it received", received, key(a.ID(), source, written), source, false},
		{"to a server that was promoted, by its replication id", forgot, key(a.ID(), source, written), source, false},
		{"to a server that was promoted before", known, key(a.ID(), source, written), source, true},
		{"to a server that was promoted just before", known, key(a.ID(), source, recorded+4), source, true},
		{"to a server that may have been promoted later", known, key(a.ID(), source, recorded+2), source, false},
		{"to a server that has been one for no longer, if the clocks differ in rate", long, key(a.ID(), source, testNow-99_500), source, false},
		{"to a server that was flushed before", flushed, key(a.ID(), source, written), source, true},
		{"to a server that was flushed while its record was away", outlived, key(a.ID(), source, written), source, false},
		{"to a server that was promoted again", another, key(a.ID(), source, written), source, false},
	} {
		if got := c.e.BroughtFrom(a, c.key, c.other, testNow); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
	// Clocks that are an hour apart change nothing.
	for _, ahead := range []int64{-3600, 3600} {
		for at, want := range map[int64]bool{written: true, started - 5: false} {
			if got := pure.BroughtFrom(a, key(a.ID(), source, at+ahead), source, testNow+ahead); got != want {
				t.Errorf("the other clock is %d s ahead, and the key was written %d s after the start: %t", ahead, at-started, got)
			}
		}
	}
	// Whole seconds may hide that it was brought; a look in the next second may tell.
	for at, want := range map[int64]bool{written: true, started + 10: true, started + 5: false} {
		if got := pure.MayBeBroughtFrom(a, key(a.ID(), source, at), source, testNow); got != want {
			t.Errorf("the key was written %d s after the start: it may be brought: %t", at-started, got)
		}
	}
	if pure.BroughtFrom(a, key(a.ID(), source, started+10), source, testNow) || promoted.MayBeBroughtFrom(a, key(a.ID(), source, written), source, testNow) {
		t.Error("whole seconds were taken for exact ones, or a server for one that was not promoted")
	}
	if pure.BroughtFrom(a, key(a.ID(), source, written), source, written-5) {
		t.Error("the other clock was set back since the key was written, and the slot counts as brought")
	}
}

// A slot's admission key is believed, or overwritten, by what the master says that wrote it, whichever other master does
// not answer. Only where that master is not found does it matter whether all have answered.
func TestCame(t *testing.T) {
	t.Parallel()
	a := agreementOf(Agreement{})
	source := Server{Run: text(7), ReplicationID: text(8)}
	key := fmt.Sprintf("%s %s %s %016d", a.ID(), source.Run, source.ReplicationID, (testNow-50)*1_000_000)
	as := Master{Server: source, Now: testNow, Answered: true}
	flushed, promoted := as, as
	flushed.Flushed, promoted.ReplicationID = true, text(6)
	before, away, then := flushed, flushed, flushed
	before.Flushes, before.Record = 2, &Record{Server: source, Since: testNow - 100, Flushes: 2}
	away.Flushes, away.Record = 2, &Record{Server: source, Since: testNow - 100, Flushes: 1}
	then.Flushes, then.Record = 2, &Record{Server: source, Since: testNow - 50, Flushes: 2}
	other, silent := Master{Server: Server{Run: text(5)}, Now: testNow, Answered: true}, Master{}
	for _, c := range []struct {
		what           string
		others         []Master
		brought, stale bool
	}{
		{"as it was", []Master{other, as}, true, false},
		{"as it was, and another is silent", []Master{silent, as}, true, false},
		{"flushed", []Master{other, flushed}, false, true},
		{"flushed, and one before it is silent", []Master{silent, flushed}, false, true},
		{"flushed, and one after it is silent", []Master{flushed, silent}, false, true},
		{"flushed before the key was written", []Master{before}, true, false},
		{"flushed in the second in which the key was written, before or after", []Master{then}, false, true},
		{"flushed while its record was away", []Master{away}, false, true},
		{"promoted, and another is silent", []Master{silent, promoted}, false, true},
		{"gone", []Master{other}, false, true},
		{"gone, or silent", []Master{other, silent}, false, false},
	} {
		e := Evidence{Server: testServer, Now: testNow, Uptime: 1000 * time.Second, Shard: new(Shard)}
		if e.Came(a, key, c.others); e.Shard.Brought != c.brought || e.Shard.Stale != c.stale {
			t.Errorf("%s: brought %t, stale %t, want %t, %t", c.what, e.Shard.Brought, e.Shard.Stale, c.brought, c.stale)
		}
	}
}
