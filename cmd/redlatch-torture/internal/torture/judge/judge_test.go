package judge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

const (
	ms  = int64(time.Millisecond)
	ttl = 2 * time.Second
)

// past returns a history of one lock, "a", from 0 to 100 s on five nodes.
func past(holds ...history.Hold) *history.History {
	for i := range holds {
		h := &holds[i]
		h.Name = "a"
		if h.Until == 0 {
			h.Until = h.From + int64(ttl)
		}
		if h.End == 0 {
			h.End = h.Until
		}
		h.Sent = max(h.Call, h.Until-int64(ttl))
	}
	return &history.History{
		End: 100_000 * ms, TTL: ttl, Drift: 22 * time.Millisecond, Nodes: 5, Workers: 4, Names: []string{"a"}, Holds: holds,
	}
}

// hold returns a hold that was released. Times are in ms.
func hold(worker int, call, from, end int64, token uint64) history.Hold {
	return history.Hold{
		Worker: worker, Call: call * ms, From: from * ms, End: end * ms, Until: from*ms + int64(ttl), Token: token,
		Released: end*ms + ms, Confirmed: true,
	}
}

func TestOverlaps(t *testing.T) {
	step := func(at int64, by time.Duration) history.Fault {
		return history.Fault{Kind: "clock", Nodes: []int{1}, Step: by, Began: at * ms, Ended: (at + 500) * ms}
	}
	knowsLate := hold(1, 0, 600, 1900, 1)
	knowsLate.Until = 1900 * ms
	for name, tt := range map[string]struct {
		holds           []history.Hold
		faults          []history.Fault
		inside, outside int
		unexplained     int // the earlier holder of the first that no step explains, if not 0
		locks           string
	}{
		"one after the other": {holds: []history.Hold{hold(1, 0, 1, 10, 1), hold(2, 5, 11, 20, 2)}, locks: Linearizable},
		"overlap":             {holds: []history.Hold{hold(1, 0, 1, 10, 1), hold(2, 5, 9, 20, 2)}, inside: 1, locks: Violated},
		"one within another": {
			holds:  []history.Hold{hold(1, 0, 1, 100, 1), hold(2, 5, 9, 20, 2), hold(3, 30, 40, 50, 3)},
			inside: 2, locks: Violated,
		},
		"over before it was known": {
			holds: []history.Hold{
				{Worker: 1, Call: 0, From: 3000 * ms, Until: 2000 * ms, End: 3000 * ms, Token: 1, Released: 3001 * ms, Confirmed: true},
				hold(2, 2000, 2500, 3500, 2),
			},
			locks: Linearizable,
		},
		"a clock stepped forward under the holder": {
			holds:  []history.Hold{hold(1, 0, 1, 1000, 1), hold(2, 5, 600, 700, 2)},
			faults: []history.Fault{step(500, time.Second)}, outside: 1, locks: Linearizable,
		},
		"a clock brought forward again": {
			holds:  []history.Hold{hold(1, 0, 1, 1900, 1), hold(2, 5, 1200, 1300, 2)},
			faults: []history.Fault{step(500, -time.Second)}, outside: 1, locks: Linearizable,
		},
		"a clock stepped back": {
			holds:  []history.Hold{hold(1, 0, 1, 900, 1), hold(2, 5, 600, 700, 2)},
			faults: []history.Fault{step(500, -time.Second)}, inside: 1, locks: Violated,
		},
		"a step within the drift": {
			holds:  []history.Hold{hold(1, 0, 1, 1000, 1), hold(2, 5, 600, 700, 2)},
			faults: []history.Fault{step(500, 20*time.Millisecond)}, inside: 1, locks: Violated,
		},
		"one that a step explains and one that it does not": {
			holds:  []history.Hold{hold(1, 0, 1, 1900, 1), hold(2, 550, 600, 750, 2), hold(3, 650, 700, 1800, 3)},
			faults: []history.Fault{step(500, time.Second)}, inside: 1, outside: 1, unexplained: 2, locks: Violated,
		},
		"a step before the holder called": {
			holds:  []history.Hold{hold(1, 600, 601, 1600, 1), hold(2, 605, 700, 710, 2)},
			faults: []history.Fault{step(500, time.Second)}, inside: 1, locks: Violated,
		},
		"a clock stepped forward under one that knows of its lock late": {
			holds:  []history.Hold{knowsLate, hold(2, 550, 560, 1600, 2)},
			faults: []history.Fault{step(500, time.Second)}, outside: 1, locks: Linearizable,
		},
		"a step when both held already": {
			holds:  []history.Hold{hold(1, 0, 1, 700, 1), hold(2, 5, 600, 1600, 2)},
			faults: []history.Fault{step(900, time.Second)}, inside: 1, locks: Violated,
		},
		"a step while the holder waited": {
			holds:  []history.Hold{hold(1, 0, 5000, 6000, 1), hold(2, 0, 5500, 5600, 2)},
			faults: []history.Fault{step(500, time.Second)}, inside: 1, locks: Violated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := past(tt.holds...)
			h.Faults = tt.faults
			h.Sort()
			f := Judge(h, time.Minute)
			if len(f.Overlaps) != tt.inside || len(f.Outside) != tt.outside {
				t.Errorf("overlaps %v, outside %v; want %d, %d", f.Overlaps, f.Outside, tt.inside, tt.outside)
			}
			if tt.unexplained > 0 && (len(f.Overlaps) == 0 || f.Overlaps[0].Holder != tt.unexplained) {
				t.Errorf("overlaps %v, want one with the hold of worker %d", f.Overlaps, tt.unexplained)
			}
			if f.Linearizable.Locks != tt.locks {
				t.Errorf("the locks are %s, want %s", f.Linearizable.Locks, tt.locks)
			}
			if len(f.Tokens) != 0 {
				t.Errorf("tokens: %v", f.Tokens)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	late := hold(2, 2, 3000, 3000, 5) // the worker was stopped, and learned of its lock when that was over
	late.Until = 2500 * ms
	for name, tt := range map[string]struct {
		holds []history.Hold
		bad   int
	}{
		"growing":                       {[]history.Hold{hold(1, 0, 1, 10, 5), hold(2, 2, 11, 20, 6)}, 0},
		"repeated":                      {[]history.Hold{hold(1, 0, 1, 10, 5), hold(2, 12, 13, 20, 5)}, 1},
		"smaller, though it waited":     {[]history.Hold{hold(1, 0, 1, 10, 5), hold(2, 0, 11, 20, 4)}, 1},
		"smaller, called under another": {[]history.Hold{hold(1, 0, 1, 1000, 5), hold(2, 2, 500, 600, 4)}, 1},
		"smaller twice":                 {[]history.Hold{hold(1, 0, 1, 10, 5), hold(2, 12, 13, 20, 3), hold(1, 22, 23, 30, 4)}, 2},
		"none, though others have":      {[]history.Hold{hold(1, 0, 1, 10, 5), hold(2, 12, 13, 20, 0)}, 1},
		"both at once, in either order": {[]history.Hold{hold(1, 0, 10, 100, 5), hold(2, 0, 11, 100, 4)}, 0},
		"over before it was known":      {[]history.Hold{late, hold(1, 2600, 2601, 2700, 6)}, 0},
		"of a library without":          {[]history.Hold{hold(1, 0, 1, 10, 0), hold(2, 2, 11, 20, 0)}, 0},
	} {
		if f := Judge(past(tt.holds...), time.Minute); len(f.Tokens) != tt.bad {
			t.Errorf("%s: %v, want %d", name, f.Tokens, tt.bad)
		}
	}
}

// A name of the one node counts as refused if it cannot be locked long after its part came up.
func TestRefused(t *testing.T) {
	h := past()
	h.Parts = map[string]int{"p": 1, "q": 2}
	h.Faults = []history.Fault{
		{Part: 1, Nodes: []int{1}, Began: 10_000 * ms, Ended: 11_000 * ms, Out: 20_000 * ms},
		{Part: 1, Nodes: []int{2}, Began: 15_000 * ms, Ended: 16_000 * ms, Out: 16_000 * ms},
	}
	h.End = 40_000 * ms
	for at := int64(0); at < 40_000; at += 100 {
		h.Probes = append(h.Probes,
			history.Attempt{Name: "p", Call: at * ms, End: (at + 1) * ms, Acquired: at < 10_000 || at > 22_000},
			history.Attempt{Name: "q", Call: at * ms, End: (at + 1) * ms, Acquired: at < 10_000 || at > 14_000})
	}
	h.Sort()
	f := Judge(h, time.Minute)
	if len(f.Refused) != 1 || f.Refused[0].Name != "q" || f.Refused[0].For < 4*time.Second || f.Refused[0].For > 5*time.Second {
		t.Errorf("%+v", f.Refused)
	}
	h = past()
	h.Parts = map[string]int{"p": 1}
	h.Probes = []history.Attempt{{Name: "p", Call: 89_000 * ms, End: 90_000 * ms, Acquired: true}, {Name: "p", Call: 92_000 * ms, End: 93_000 * ms}}
	if never := Judge(h, time.Minute).Refused; len(never) != 2 || never[1].For != 10*time.Second {
		t.Errorf("not locked again until the end: %+v", never)
	}
	if a := f.Availability; a.QuorumUp != 35*time.Second || a.Tried-a.Served > 62 || a.Tried-a.Served < 58 {
		t.Errorf("%+v", a)
	}
}

func TestRegisters(t *testing.T) {
	h := past()
	h.Writes = []history.Write{
		{Name: "a", ID: "1"}, {Name: "a", ID: "2", Prev: "1"}, {Name: "a", ID: "3", Prev: "1"}, // 2 is lost
		{Name: "a", Guarded: true, ID: "1"}, {Name: "b", Guarded: true, ID: "2"},
		{Name: "a", Guarded: true, ID: "3", Prev: "1"}, {Name: "a", ID: "4", Prev: "3"},
	}
	h.Ops = []history.Op{{Name: "a", Token: 1, Stale: true, Call: 1, End: 2}, {Name: "a", Token: 2, Call: 1, End: 3}}
	f := Judge(h, time.Minute)
	if want := (Register{Writes: 4, Lost: 1}); f.Open != want {
		t.Errorf("open: %+v, want %+v", f.Open, want)
	}
	if want := (Register{Writes: 3, Refused: 1}); f.Guarded != want {
		t.Errorf("guarded: %+v, want %+v", f.Guarded, want)
	}
}

func TestOrphans(t *testing.T) {
	look := func(at int64, node int) history.Look {
		return history.Look{At: at * ms, Node: node, Name: "a", Found: true}
	}
	died := hold(1, 50_000, 50_001, 50_100, 3)
	died.Released, died.Died = 0, 50_100*ms
	unsure := hold(1, 60_000, 60_001, 60_002, 4)
	unsure.Confirmed = false
	held := hold(2, 98_000, 98_001, 0, 5)
	held.Released = 0
	h := past(hold(1, 0, 1, 10, 1), hold(2, 20_000, 20_001, 20_010, 2), died, unsure, held)
	h.Failed = []history.Attempt{
		{Name: "a", Call: 30_000 * ms, End: 30_100 * ms},
		{Name: "a", Call: 70_000 * ms, Died: 70_100 * ms},
		{Name: "a", Call: 96_000 * ms},
	}
	h.Faults = []history.Fault{{Kind: "partition", Nodes: []int{2}, Began: 8000 * ms, Ended: 9000 * ms, Out: 12_000 * ms}}
	for name, tt := range map[string]struct {
		history.Look
		looks, orphans int
	}{
		"at rest":                   {look(10_000, 1), 1, 1},
		"held":                      {look(20_005, 1), 0, 0},
		"while it was tried for":    {look(30_050, 1), 0, 0},
		"as it was given up":        {look(30_110, 1), 0, 0},
		"long after that":           {look(30_600, 1), 1, 1},
		"as it was released":        {look(20_020, 1), 0, 0},
		"a node that was cut off":   {look(10_000, 2), 0, 0},
		"a node long after it was":  {look(15_000, 2), 1, 1},
		"of a dead worker":          {look(52_000, 1), 0, 0},
		"longer than its TTL":       {look(54_000, 1), 1, 1},
		"of an unconfirmed release": {look(62_000, 1), 0, 0},
		"of one that died trying":   {look(72_000, 1), 0, 0},
		"long after it died":        {look(73_000, 1), 1, 1},
		"of one that tries still":   {look(97_000, 1), 0, 0},
		"of one that holds still":   {look(99_000, 1), 0, 0},
		"a node that was out after": {look(13_000, 2), 0, 0},
		"nothing there":             {history.Look{At: 10_000 * ms, Node: 1, Name: "a"}, 1, 0},
	} {
		h.Looks = []history.Look{tt.Look}
		if f := Judge(h, time.Minute); f.Looks != tt.looks || len(f.Orphans) != tt.orphans {
			t.Errorf("%s: %d looks, %d orphans; want %d, %d", name, f.Looks, len(f.Orphans), tt.looks, tt.orphans)
		}
	}
}

// Several servers that are one node: a fault of one is a fault of the node until it is over, whether or not the node
// votes by then. Keys may stay for longer than the TTL.
func TestOrphansOfSeveralServers(t *testing.T) {
	died := hold(1, 1000, 1001, 1100, 1)
	died.Released, died.Died = 0, 1100*ms
	h := past(died)
	h.Kept, h.Labels = 5*time.Second, []string{"the master", "a replica"}
	h.Faults = []history.Fault{
		{Kind: "kill", Nodes: []int{1}, Began: 30_000 * ms, Ended: 31_000 * ms, Out: 60_000 * ms},
		{Kind: "stop", Workers: []int{1}, Began: 50_000 * ms, Ended: 51_000 * ms},
	}
	for at, orphans := range map[int64]int{5000: 0, 7000: 1, 32_000: 0, 37_000: 1, 50_500: 1} {
		h.Looks = []history.Look{{At: at * ms, Node: 2, Name: "a", Found: true}}
		if f := Judge(h, time.Minute); len(f.Orphans) != orphans {
			t.Errorf("at %d ms: %d orphans, want %d", at, len(f.Orphans), orphans)
		}
	}
}

func TestAvailability(t *testing.T) {
	h := past()
	out := func(node int, from, to int64) history.Fault {
		return history.Fault{Nodes: []int{node}, Began: from * ms, Ended: to * ms, Out: to * ms}
	}
	h.Faults = []history.Fault{out(1, 10_000, 40_000), out(2, 20_000, 50_000), out(3, 30_000, 35_000), out(3, 33_000, 36_000)}
	h.Probes = []history.Attempt{
		{Call: 1000 * ms, End: 1001 * ms, Acquired: true},
		{Call: 25_000 * ms, End: 26_000 * ms},
		{Call: 29_000 * ms, End: 30_500 * ms}, // a quorum was up at its beginning only
		{Call: 35_500 * ms, End: 35_900 * ms},
		{Call: 37_000 * ms, End: 37_010 * ms, Acquired: true},
		{Call: 99_000 * ms}, // not over at the end
	}
	h.Sort()
	a := Judge(h, time.Minute).Availability
	want := Availability{QuorumUp: 94 * time.Second, Length: 100 * time.Second, Tried: 3, Served: 2, AllTried: 5, AllServed: 2}
	if a != want {
		t.Errorf("got %+v, want %+v", a, want)
	}
}

// In a long history, which is cut into pieces, a single overlap is found.
func TestLinearizableLong(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var holds []history.Hold
	at := int64(10)
	for i := range 5000 {
		from := at + r.Int64N(5)
		end := from + 1 + r.Int64N(20)
		holds = append(holds, hold(1+i%4, from-r.Int64N(9), from, end, uint64(i+1)))
		at = end + 1 + r.Int64N(12)
	}
	h := past(holds...)
	h.Sort()
	if f := Judge(h, time.Minute); f.Linearizable.Locks != Linearizable || len(f.Overlaps) > 0 {
		t.Fatalf("%+v, %v", f.Linearizable, f.Overlaps)
	}
	at2 := r.IntN(len(holds) - 1)
	broken := slices.Clone(h.Holds)
	broken[at2].End, broken[at2].Until = broken[at2+1].From+ms, broken[at2+1].From+ms
	h.Holds = broken
	if f := Judge(h, time.Minute); f.Linearizable.Locks != Violated || len(f.Overlaps) == 0 {
		t.Errorf("hold %d overlaps the next: %+v, %v", at2, f.Linearizable, f.Overlaps)
	}
}

func TestLinearizableRegister(t *testing.T) {
	read := func(call, end int64, token uint64, value string) history.Op {
		return history.Op{Name: "a", Call: call, End: end, Token: token, Read: value}
	}
	write := func(call, end int64, token uint64, id string) history.Op {
		return history.Op{Name: "a", Call: call, End: end, Token: token, Wrote: id}
	}
	stale := func(op history.Op) history.Op { op.Stale = true; return op }
	died := func(op history.Op) history.Op { op.Died = 2; return op }
	for name, tt := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"in turn":             {[]history.Op{read(1, 2, 1, ""), write(3, 4, 1, "x"), read(5, 6, 2, "x"), stale(write(7, 8, 1, "y"))}, Linearizable},
		"an old one let in":   {[]history.Op{read(1, 2, 2, ""), write(3, 4, 1, "x")}, Violated},
		"a write unseen":      {[]history.Op{write(1, 2, 1, "x"), read(3, 4, 2, "")}, Violated},
		"a needless refusal":  {[]history.Op{read(1, 2, 1, ""), stale(write(3, 4, 1, "x"))}, Violated},
		"no answer, done":     {[]history.Op{write(1, 0, 1, "x"), read(3, 4, 2, "x")}, Linearizable},
		"no answer, undone":   {[]history.Op{write(1, 0, 1, "x"), read(3, 4, 2, "")}, Linearizable},
		"never arrived":       {[]history.Op{died(write(1, 0, 1, "x")), read(8000*ms, 8001*ms, 2, "")}, Linearizable},
		"arrived":             {[]history.Op{died(write(1, 0, 1, "x")), read(8000*ms, 8001*ms, 2, "x")}, Linearizable},
		"arrived in between":  {[]history.Op{died(write(1, 0, 1, "x")), read(3, 4, 1, ""), read(8000*ms, 8001*ms, 2, "x")}, Linearizable},
		"arrived, and undone": {[]history.Op{died(write(1, 0, 1, "x")), read(3, 4, 1, "x"), read(8000*ms, 8001*ms, 2, "")}, Violated},
		"announced or not":    {[]history.Op{died(read(1, 0, 2, "")), read(8000*ms, 8001*ms, 1, "")}, Linearizable},
	} {
		h := past()
		h.Ops = tt.ops
		if f := Judge(h, time.Minute); f.Linearizable.Registers != tt.want {
			t.Errorf("%s: %s, want %s", name, f.Linearizable.Registers, tt.want)
		}
	}
	var ops []history.Op
	last := ""
	for i := range int64(3000) {
		id := time.Duration(i + 1).String()
		ops = append(ops, read(10*i+1, 10*i+2, uint64(i+1), last), write(10*i+3, 10*i+4, uint64(i+1), id))
		last = id
	}
	h := past()
	h.Ops = ops
	if f := Judge(h, time.Minute); f.Linearizable.Registers != Linearizable {
		t.Errorf("long: %s", f.Linearizable.Registers)
	}
	ops[4001].Wrote = "else"
	if f := Judge(h, time.Minute); f.Linearizable.Registers != Violated {
		t.Errorf("long, with a write that nobody saw: %s", f.Linearizable.Registers)
	}
}
