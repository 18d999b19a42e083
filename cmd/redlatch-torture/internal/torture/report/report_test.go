package report

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
)

// sound returns the report of a run without a violation that proved something.
func sound() *Report {
	const s = int64(time.Second)
	h := &history.History{
		Start: 100 * s, End: 110 * s, TTL: 2 * time.Second, Nodes: 3, Workers: 2, Names: []string{"a</script>"},
		Faults: []history.Fault{{
			ID: 1, Kind: "split", Nodes: []int{1, 2}, Workers: []int{2}, Split: true, Began: 101 * s, Ended: 102 * s, Out: 103 * s, Detail: "both ways",
		}},
	}
	for i := range int64(20) {
		h.Holds = append(h.Holds, history.Hold{Name: h.Names[0], Worker: 1, From: (100 + i/2) * s, End: (100+i/2)*s + s/4})
	}
	return &Report{
		Topology: "redlock", Seed: 42, Asked: 10 * time.Second, Nodes: 3, Workers: 2, Names: h.Names, Locks: 1, Kinds: []string{"split"}, History: h,
		Findings: &judge.Findings{
			Acquisitions: 20, ByName: map[string]int{h.Names[0]: 20},
			Linearizable: judge.Linearizability{Locks: judge.Linearizable, Registers: judge.Linearizable},
		},
		Control: &judge.Findings{Overlaps: []judge.Overlap{{}}}, Bug: "any-node",
	}
}

func TestVerdict(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*Report)
		want  string // a part of the text
		ok    bool
	}{
		"sound":                {func(*Report) {}, "nothing was violated\n", true},
		"an overlap":           {func(r *Report) { r.Findings.Overlaps = []judge.Overlap{{Name: "a"}} }, "violated: an overlap", false},
		"one outside":          {func(r *Report) { r.Findings.Outside = []judge.Overlap{{Name: "a"}} }, "nothing was violated\n", true},
		"a lost update":        {func(r *Report) { r.Findings.Guarded.Lost = 2 }, "violated: 2 lost updates on the guarded", false},
		"an open lost update":  {func(r *Report) { r.Findings.Open.Lost = 2 }, "nothing was violated\n", true},
		"a token":              {func(r *Report) { r.Findings.Tokens = []string{"5 after 6"} }, "the first: 5 after 6", false},
		"a key":                {func(r *Report) { r.Findings.Orphans = []judge.Orphan{{Name: "a", Node: 2}} }, "violated: a key left behind", false},
		"a history":            {func(r *Report) { r.Findings.Linearizable.Locks = judge.Violated }, "history of the locks is not linearizable", false},
		"a history not judged": {func(r *Report) { r.Findings.Linearizable.Registers = judge.Unknown }, "not proved: the time did not suffice to tell", false},
		"a worker's end":       {func(r *Report) { r.History.Errors = []string{"worker 1 died"} }, "violated: worker 1 died", false},
		"no fault":             {func(r *Report) { r.History.Faults = nil }, "not proved: no fault happened", false},
		"a kind missing":       {func(r *Report) { r.Kinds = append(r.Kinds, "stop") }, "not proved: no fault of the kind stop", false},
		"a stranger": {func(r *Report) {
			r.History.Faults[0].Kind, r.Kinds = "stranger", []string{"stranger"}
		}, "not proved: no client with other settings was refused", false},
		"a stranger refused": {func(r *Report) {
			r.History.Faults[0].Kind, r.Kinds, r.History.Refusals = "stranger", []string{"stranger"}, 7
		}, "times that one of 1 clients with other settings", true},
		"few acquisitions":       {func(r *Report) { r.Findings.Acquisitions = 19 }, "not proved: a lock was acquired only 19 times", false},
		"a lock left alone":      {func(r *Report) { r.Names = append(r.Names, "b") }, "not proved: nobody acquired b", false},
		"a control run in order": {func(r *Report) { r.Control.Overlaps = nil }, "not proved: the control run, whose lock is broken (any-node)", false},
		"no look":                {func(r *Report) { r.Asked = time.Minute }, "not proved: nobody looked for keys left behind", false},
		"a look":                 {func(r *Report) { r.Asked, r.Findings.Looks = time.Minute, 1 }, "in 1 looks", true},
		"no control run":         {func(r *Report) { r.Control = nil }, "not proved: there was no control run", false},
		"interrupted":            {func(r *Report) { r.Control, r.Interrupted = nil, true }, "interrupted; nothing was violated so far", true},
	} {
		r := sound()
		tt.spoil(r)
		if text := r.Text(); !strings.Contains(text, tt.want) || r.OK() != tt.ok {
			t.Errorf("%s: OK %v and\n%s\nwant %q", name, r.OK(), text, tt.want)
		}
	}
}

func TestHTML(t *testing.T) {
	var b strings.Builder
	if err := sound().HTML(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"nothing was violated", "--for 10s --seed 42 --workers 2 --names 1 --ttl 0s --topology redlock --nodes-count 3 --faults split", "nodes 1, 2 from worker 2", "both ways", `"length":100000`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	// The page needs no other file, and the name of a lock cannot end its script.
	if found := regexp.MustCompile(`https?://|\ssrc=|<link|@import|a</script>`).FindString(text); found != "" {
		t.Errorf("%q is in the page", found)
	}
}

// The command that repeats a run on somebody's own nodes has the options that the run was allowed with.
func TestAgain(t *testing.T) {
	r := sound()
	r.Yours = true
	if command := r.again(); !strings.Contains(command, " --nodes URL,... --against-my-nodes --faults split") || strings.Contains(command, "--topology") {
		t.Error(command)
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := sound().JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK     bool
		Seed   uint64
		Faults []struct {
			Kind string
			At   float64 `json:"at_s"`
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if !got.OK || got.Seed != 42 || len(got.Faults) != 1 || got.Faults[0].Kind != "split" || got.Faults[0].At != 1 {
		t.Errorf("%+v", got)
	}
}

// What failed once in a long run did not succeed always.
func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{
		0: "0.0 %", 0.5: "50.0 %", 1: "100.0 %", 0.9953: "99.530 %", 0.99984: "99.984 %",
		1 - 1/300_000.0: "99.999 %", 1 - 1/3e9: "99.999 %",
	} {
		if got := percent(share); got != want {
			t.Errorf("%v: %s, want %s", share, got, want)
		}
	}
}
