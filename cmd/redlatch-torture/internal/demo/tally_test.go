package demo

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestTallyAddsUp(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int64) int64 { return start.UnixNano() + ms*1e6 }
	tally := newTally(2, 5, start)
	tally.add(0, report{Ready: true}, 0)
	tally.add(0, report{Turn: at(10), Wait: 5 * time.Millisecond, Locked: true, Updated: true}, 0)
	tally.add(1, report{Turn: at(20), Wait: 90 * time.Millisecond, Locked: true, Updated: true, Overlap: "first"}, 2)
	tally.add(1, report{Turn: at(30), Locked: true, Garbled: "half", Unreleased: true}, 2)
	tally.add(0, report{Turn: at(40), Locked: true, Lost: true, Disorder: "older", Overlap: "second"}, 1)
	tally.add(0, report{Turn: at(45), Updated: true}, 0) // without the lock

	if tally.acquisitions != 4 || tally.updates != 3 || tally.lost != 1 || tally.unreleased != 1 {
		t.Errorf("acquisitions %d, updates %d, lost %d, unreleased %d; want 4 3 1 1", tally.acquisitions, tally.updates, tally.lost, tally.unreleased)
	}
	if tally.byOut[0] != 1 || tally.byOut[1] != 1 || tally.byOut[2] != 2 {
		t.Errorf("acquisitions by nodes out: %v", tally.byOut)
	}
	if o := tally.overlaps; o.n != 2 || o.first != "first" {
		t.Errorf("overlaps: %+v", o)
	}
	if tally.garbled.n != 1 || tally.disorders.n != 1 {
		t.Errorf("garbled %d, disorders %d; want 1 1", tally.garbled.n, tally.disorders.n)
	}
	if d, worker := tally.longestWait(); d != 90*time.Millisecond || worker != 1 {
		t.Errorf("longest wait %v of worker %d", d, worker)
	}
	// A wait that the end of the race cut short counts as a wait.
	tally.add(0, report{Unserved: 3 * time.Second}, 0)
	if d, worker := tally.longestWait(); d != 3*time.Second || worker != 0 {
		t.Errorf("longest wait %v of worker %d, want the one that was cut short", d, worker)
	}
}

func TestGaps(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		name string
		at   []int64 // ms
		end  int64
		want time.Duration
	}{
		{"none", nil, 700, 700 * time.Millisecond},
		{"before the first", []int64{500, 510}, 520, 500 * time.Millisecond},
		{"between", []int64{10, 210, 215}, 220, 200 * time.Millisecond},
		{"after the last", []int64{10, 20}, 400, 380 * time.Millisecond},
		{"late report", []int64{10, 300, 150}, 310, 150 * time.Millisecond},
		{"after the end", []int64{10, 20, 30}, 25, 10 * time.Millisecond},
	} {
		g := gaps{last: start.UnixNano()}
		for _, ms := range tt.at {
			g.add(start.UnixNano() + ms*1e6)
		}
		if got := g.until(start.Add(time.Duration(tt.end) * time.Millisecond)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The longest gap is found, in bounded memory, although some reports are late by less than a
// batch.
func TestGapsInDisorder(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var times []int64
	now, longest := int64(0), time.Duration(0)
	for range 10_000 {
		step := r.Int64N(int64(20 * time.Millisecond))
		longest = max(longest, time.Duration(step))
		now += step
		times = append(times, now)
	}
	for i := 0; i+16 <= len(times); i += 16 {
		part := times[i : i+16]
		r.Shuffle(16, func(a, b int) { part[a], part[b] = part[b], part[a] })
	}
	var g gaps
	for _, at := range times {
		g.add(at)
		if len(g.recent) > 1024 {
			t.Fatalf("%d times kept", len(g.recent))
		}
	}
	if got := g.until(time.Unix(0, now)); got != longest {
		t.Errorf("longest gap %v, want %v (seed %d)", got, longest, seed)
	}
}
