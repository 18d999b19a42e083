package judge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

// reader returns a hold of a reader that was released. Times are in ms.
func reader(worker int, call, from, end int64, token uint64) history.Hold {
	h := hold(worker, call, from, end, token)
	h.Shared = true
	return h
}

func TestReaders(t *testing.T) {
	for name, tt := range map[string]struct {
		holds            []history.Hold
		overlaps, tokens int
		locks            string
	}{
		"together, tokens in any order": {[]history.Hold{hold(1, 0, 1, 10, 5), reader(2, 5, 11, 30, 8), reader(3, 6, 12, 20, 7), reader(4, 22, 23, 40, 7), hold(1, 6, 41, 50, 9)}, 0, 0, Linearizable},
		"a writer beside a reader":      {[]history.Hold{reader(1, 0, 1, 10, 5), hold(2, 2, 9, 20, 6)}, 1, 0, Violated},
		"a reader beside a writer":      {[]history.Hold{hold(1, 0, 1, 10, 5), reader(2, 2, 9, 20, 6)}, 1, 0, Violated},
		"beside the last of several":    {[]history.Hold{reader(1, 0, 1, 10, 5), reader(2, 0, 2, 30, 5), hold(3, 2, 11, 20, 6)}, 1, 0, Violated},
		"a writer's token again":        {[]history.Hold{hold(1, 0, 1, 10, 5), reader(2, 11, 12, 20, 5)}, 0, 1, Violated},
		"a reader's token again":        {[]history.Hold{reader(1, 0, 1, 10, 5), hold(2, 11, 12, 20, 5)}, 0, 1, Violated},
		"behind the writer before":      {[]history.Hold{hold(1, 0, 1, 10, 5), reader(2, 11, 12, 20, 7), reader(3, 11, 13, 20, 4)}, 0, 1, Violated},
		"a writer behind one reader":    {[]history.Hold{reader(1, 0, 1, 10, 8), reader(2, 0, 1, 10, 6), hold(3, 11, 12, 20, 7)}, 0, 1, Violated},
		"of a library without":          {[]history.Hold{hold(1, 0, 1, 10, 0), reader(2, 2, 11, 20, 0), reader(3, 2, 11, 20, 0)}, 0, 0, Linearizable},
	} {
		h := past(tt.holds...)
		h.Sort()
		f := Judge(h, time.Minute)
		if len(f.Overlaps) != tt.overlaps || len(f.Tokens) != tt.tokens || f.Linearizable.Locks != tt.locks {
			t.Errorf("%s: overlaps %v, tokens %v, %s; want %d, %d, %s", name, f.Overlaps, f.Tokens, f.Linearizable.Locks, tt.overlaps, tt.tokens, tt.locks)
		}
	}
}

// In a long history of readers and writers in turn, a single overlap is found.
func TestReadersLong(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var holds []history.Hold
	at, token := int64(10), uint64(1)
	for range 800 {
		holds = append(holds, hold(1, at-2, at, at+3, token))
		at += 4
		over := at
		for i := range 1 + r.IntN(5) {
			end := at + 2 + r.Int64N(9)
			holds = append(holds, reader(2+i, at-r.Int64N(3), at+1, end, token+1+r.Uint64N(6)))
			over = max(over, end)
		}
		at, token = over+3+r.Int64N(3), token+10
	}
	h := past(holds...)
	h.End = at * ms
	h.Sort()
	f := Judge(h, time.Minute)
	if f.Linearizable.Locks != Linearizable || len(f.Overlaps)+len(f.Tokens) > 0 || f.Together.MostReaders < 2 {
		t.Fatalf("%+v, %v, %v, %+v", f.Linearizable, f.Overlaps, f.Tokens, f.Together)
	}
	for i := range h.Holds { // one reader stays as the writer comes
		if i > 2000 && h.Holds[i].Shared && !h.Holds[i+1].Shared {
			h.Holds[i].End = h.Holds[i+1].From + 2*ms
			h.Holds[i].Until = h.Holds[i].End
			break
		}
	}
	if f := Judge(h, time.Minute); f.Linearizable.Locks != Violated || len(f.Overlaps) == 0 {
		t.Errorf("%+v, %v", f.Linearizable, f.Overlaps)
	}
}

// A register refuses a reader's access only if the token is smaller than a writer's.
func TestReadersRegister(t *testing.T) {
	read := func(call int64, token uint64, value string) history.Op {
		return history.Op{Name: "a", Call: call, End: call + 1, Token: token, Read: value, Shared: true}
	}
	write := func(call int64, token uint64, id string) history.Op {
		return history.Op{Name: "a", Call: call, End: call + 1, Token: token, Wrote: id}
	}
	stale := func(op history.Op) history.Op { op.Stale = true; return op }
	for name, tt := range map[string]struct {
		ops  []history.Op
		want string
	}{
		"in any order":            {[]history.Op{write(1, 3, "x"), read(3, 5, "x"), read(5, 4, "x"), write(7, 6, "y"), stale(read(9, 5, ""))}, Linearizable},
		"a reader behind, let in": {[]history.Op{write(1, 3, "x"), read(3, 2, "x")}, Violated},
		"a needless refusal":      {[]history.Op{write(1, 3, "x"), read(3, 5, "x"), stale(read(5, 4, ""))}, Violated},
		"a writer behind readers": {[]history.Op{read(1, 5, ""), write(3, 4, "x")}, Violated},
	} {
		h := past()
		h.Ops = tt.ops
		if f := Judge(h, time.Minute); f.Linearizable.Registers != tt.want {
			t.Errorf("%s: %s, want %s", name, f.Linearizable.Registers, tt.want)
		}
	}
}

// Each name of a set is judged as a lock, but the set is one acquisition. Each slot is judged as a lock, and a hold
// of a slot that does not exist is strange.
func TestSetsAndSlots(t *testing.T) {
	named := func(h history.Hold, name string, further bool) history.Hold {
		h.Name, h.Further = name, further
		return h
	}
	set := hold(1, 0, 1, 10, 5)
	set.Lost = true
	h := past()
	h.Names, h.Slots = []string{"a", "b", "c#0", "c#1"}, []string{"c#0", "c#1"}
	h.Holds = []history.Hold{
		named(set, "a", false), named(set, "b", true), named(hold(2, 0, 9, 20, 6), "b", false),
		named(hold(3, 30, 31, 40, 9), "c#0", false), named(hold(4, 30, 32, 40, 7), "c#1", false), named(hold(2, 30, 33, 40, 8), "c#2", false),
	}
	h.Failed = []history.Attempt{{Name: "a", Call: 1, End: 2}, {Name: "b", Call: 1, End: 2, Further: true}}
	h.Sort()
	f := Judge(h, time.Minute)
	if len(f.Overlaps) != 1 || f.Overlaps[0].Name != "b" || len(f.Tokens) != 0 || len(f.Strange) != 1 {
		t.Errorf("overlaps %v, tokens %v, strange %v", f.Overlaps, f.Tokens, f.Strange)
	}
	if want := (Waits{Median: 2 * time.Millisecond, P99: 9 * time.Millisecond, Max: 9 * time.Millisecond}); f.Waits != want || f.KnownLost != 1 {
		t.Errorf("%+v, %d known lost", f.Waits, f.KnownLost)
	}
	if want := (Together{Sets: 1, Permits: 2, MostPermits: 2}); f.Together != want || f.Acquisitions != 4 || f.GaveUp != 1 {
		t.Errorf("%+v, %d acquisitions, %d given up", f.Together, f.Acquisitions, f.GaveUp)
	}
}
