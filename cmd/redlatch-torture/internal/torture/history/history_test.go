package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// read returns the history of one caller whose log has these lines.
func read(t *testing.T, died int64, lines ...string) *History {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &History{}
	if err := h.Add(Process{Worker: 2, Life: 1, Log: path, TTL: 70, Died: died}); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRead(t *testing.T) {
	const call, acquired = `{"t":10,"e":"call","n":"a"}`, `{"t":20,"e":"acquired","n":"a","u":100,"k":7}`
	begun := Hold{Name: "a", Worker: 2, Life: 1, Call: 10, From: 20, Sent: 30, Until: 100, Token: 7}
	with := func(change func(*Hold)) Hold { h := begun; change(&h); return h }
	for name, tt := range map[string]struct {
		died  int64
		lines []string
		want  Hold
	}{
		"released": {0, []string{call, acquired, `{"t":30,"e":"releasing","n":"a"}`, `{"t":40,"e":"released","n":"a"}`},
			with(func(h *Hold) { h.End, h.Released, h.Confirmed = 30, 40, true })},
		"released unconfirmed": {0, []string{call, acquired, `{"t":30,"e":"releasing","n":"a"}`, `{"t":40,"e":"released","n":"a","r":"no"}`},
			with(func(h *Hold) { h.End, h.Released = 30, 40 })},
		"ran out first": {0, []string{call, acquired, `{"t":130,"e":"releasing","n":"a"}`, `{"t":140,"e":"released","n":"a"}`},
			with(func(h *Hold) { h.End, h.Released, h.Confirmed = 100, 140, true })},
		"extended": {0, []string{call, acquired, `{"t":50,"e":"extended","n":"a","u":150}`, `{"t":120,"e":"lost","n":"a"}`,
			`{"t":130,"e":"releasing","n":"a"}`, `{"t":140,"e":"released","n":"a"}`},
			with(func(h *Hold) { h.Until, h.End, h.Lost, h.Released, h.Confirmed = 150, 120, true, 140, true })},
		"killed":            {60, []string{call, acquired}, with(func(h *Hold) { h.End, h.Died = 60, 60 })},
		"killed afterwards": {160, []string{call, acquired}, with(func(h *Hold) { h.End, h.Died = 100, 160 })},
	} {
		if h := read(t, tt.died, tt.lines...); len(h.Holds) != 1 || h.Holds[0] != tt.want {
			t.Errorf("%s: %+v, want %+v", name, h.Holds, tt.want)
		}
	}
}

func TestReadOpenEnds(t *testing.T) {
	h := read(t, 90, `{"t":10,"e":"call","n":"a"}`, `{"t":15,"e":"fail","n":"a","r":"held"}`, `{"t":20,"e":"call","n":"a"}`,
		`{"t":30,"e":"acquired","n":"a","u":100,"k":7}`, `{"t":31,"e":"reading","n":"a","k":7}`, `{"t":32,"e":"read","n":"a","k":7,"g":"x"}`,
		`{"t":40,"e":"writing","n":"a","k":7,"i":"2.1.1"}`)
	if want := (Op{Name: "a", Worker: 2, Call: 31, End: 32, Token: 7, Read: "x"}); len(h.Ops) != 2 || h.Ops[0] != want {
		t.Errorf("%+v, want %+v first", h.Ops, want)
	}
	if want := (Op{Name: "a", Worker: 2, Call: 40, Token: 7, Wrote: "2.1.1", Died: 90}); h.Ops[1] != want {
		t.Errorf("%+v, want %+v", h.Ops[1], want)
	}
	if want := (Attempt{Name: "a", Worker: 2, Call: 10, End: 15, Why: "held"}); len(h.Failed) != 1 || h.Failed[0] != want {
		t.Errorf("%+v, want %+v", h.Failed, want)
	}
	h = read(t, 90, `{"t":10,"e":"call","n":"a"}`)
	if want := (Attempt{Name: "a", Worker: 2, Call: 10, Died: 90}); len(h.Failed) != 1 || h.Failed[0] != want {
		t.Errorf("%+v, want %+v", h.Failed, want)
	}
}

// A set is read as a hold of each name, and an open call for a permit as an attempt for each slot.
func TestReadSeveral(t *testing.T) {
	h := read(t, 60, `{"t":10,"e":"call","n":"a","w":["b"]}`, `{"t":20,"e":"acquired","n":"a","w":["b"],"u":100,"k":7}`,
		`{"t":30,"e":"extended","n":"a","u":150}`, `{"t":40,"e":"releasing","n":"a"}`, `{"t":41,"e":"released","n":"a"}`,
		`{"t":42,"e":"call","n":"a"}`, `{"t":43,"e":"acquired","n":"a","u":100,"k":8,"s":true}`, `{"t":44,"e":"reading","n":"a","k":8,"s":true}`,
		`{"t":45,"e":"read","n":"a","k":8}`, `{"t":46,"e":"releasing","n":"a"}`, `{"t":47,"e":"released","n":"a"}`, `{"t":50,"e":"call","n":"c#0","w":["c#1"]}`)
	one := Hold{Name: "a", Worker: 2, Life: 1, Call: 10, From: 20, Sent: 30, Until: 150, End: 40, Token: 7, Released: 41, Confirmed: true}
	other, shared := one, Hold{Name: "a", Worker: 2, Life: 1, Call: 42, From: 43, Sent: 42, Until: 100, End: 46, Token: 8, Shared: true, Released: 47, Confirmed: true}
	other.Name, other.Further = "b", true
	if len(h.Holds) != 3 || h.Holds[0] != one || h.Holds[1] != other || h.Holds[2] != shared {
		t.Errorf("%+v", h.Holds)
	}
	if len(h.Ops) != 1 || !h.Ops[0].Shared {
		t.Errorf("%+v", h.Ops)
	}
	if slot := (Attempt{Name: "c#1", Worker: 2, Call: 50, Further: true, Died: 60}); len(h.Failed) != 2 || h.Failed[0].Further || h.Failed[1] != slot {
		t.Errorf("%+v", h.Failed)
	}
}

func TestSteps(t *testing.T) {
	h := &History{Drift: 20 * time.Millisecond, Faults: []Fault{
		{Step: time.Second, Began: 50, Ended: 60}, {Step: -time.Second, Began: 30, Ended: 40}, {Step: 20 * time.Millisecond, Began: 1, Ended: 2},
	}}
	if got := h.Steps(); len(got) != 2 || got[0] != 40 || got[1] != 50 {
		t.Errorf("%v, want what moves a clock forward by more than the drift: [40 50]", got)
	}
}
