package demo

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// passed returns the result of a run without a violation that proved something.
func passed() *Result {
	start := time.Unix(1000, 0)
	tally := newTally(2, 5, start)
	for i := range 10 {
		tally.add(i%2, report{Turn: start.UnixNano() + int64(i)*1e6, Locked: true, Updated: true}, i%3)
	}
	var stories []*story
	for i := range 5 {
		stories = append(stories, &story{number: i + 1})
	}
	stories[1].outages = []outage{{fault: killed, began: 400 * time.Millisecond, back: time.Second, votes: 7 * time.Second}}
	return &Result{
		options: Options{For: 10 * time.Second, Workers: 2, Nodes: 5}, kind: "test servers",
		lasted: 10 * time.Second, tally: tally, stories: stories, count: 10,
	}
}

func TestResult(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *Result)
		// violated and unproved are parts of the violations and of the reason why nothing was proved.
		// If one is "", there must be none.
		violated, unproved string
	}{
		{"passed", func(*Result) {}, "", ""},
		{"one overlap", func(r *Result) { r.tally.overlaps.add("worker 1 found worker 2") }, "an overlap: worker 1 found worker 2", ""},
		{"two overlaps", func(r *Result) { r.tally.overlaps = counter{2, "x"} }, "2 overlaps, the first: x", ""},
		{"lost update", func(r *Result) { r.count = 9 }, "1 lost updates: 10 were made, the record counts 9", ""},
		{"update from nowhere", func(r *Result) { r.count = 11 }, "the record counts 11 updates, 10 were made", ""},
		{"no record", func(r *Result) { r.countErr = errors.New("gone") }, "the record cannot be read: gone", ""},
		{"garbled", func(r *Result) { r.tally.garbled.add("half") }, "a garbled record: half", ""},
		{"tokens", func(r *Result) { r.tally.disorders.add("5 after 6") }, "a fencing token out of order: 5 after 6", ""},
		{"worker died", func(r *Result) { r.deaths = []string{"worker 2: killed"} }, "worker 2: killed", ""},
		{"fence too short", func(r *Result) { r.stories[1].outages[0].votes = 2900 * time.Millisecond }, "node 2 voted 1.9 s after it came back empty", ""},
		{"a hung node votes at once", func(r *Result) {
			r.stories[1].outages[0] = outage{fault: hung, back: time.Second, votes: time.Second + 1}
		}, "", ""},
		{"no acquisition", func(r *Result) {
			r.tally = newTally(2, 5, time.Unix(1000, 0))
			r.count = 0
		}, "", "nobody acquired the lock"},
		{"no fault", func(r *Result) { r.stories[1].outages = nil }, "", "no node was taken out"},
		{"no acquisition under a fault", func(r *Result) { r.tally.byOut = []int{10, 0, 0, 0, 0, 0} }, "", "while a node was out"},
		{"without the lock", func(r *Result) { r.options.NoLock = true }, "", "did not use the lock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := passed()
			tt.change(r)
			violated, unproved := strings.Join(r.Violations(), "\n"), r.Unproved()
			if !strings.Contains(violated, tt.violated) || (tt.violated == "") != (violated == "") {
				t.Errorf("violations %q, want %q", violated, tt.violated)
			}
			if !strings.Contains(unproved, tt.unproved) || (tt.unproved == "") != (unproved == "") {
				t.Errorf("unproved %q, want %q", unproved, tt.unproved)
			}
			if want := tt.violated == "" && tt.unproved == ""; r.OK() != want {
				t.Errorf("OK is %v, want %v", r.OK(), want)
			}
			if s := r.Summary(); !strings.Contains(s, tt.violated) || !strings.Contains(s, tt.unproved) {
				t.Errorf("the summary does not say so:\n%s", s)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	r := passed()
	r.standstill = 80 * time.Millisecond
	r.tally.add(1, report{Unserved: 1500 * time.Millisecond}, 0)
	want := `
measured
  acquisitions          10 in 10.0 s, by worker: 5 5
                        3 of them with 1 of 5 nodes out
                        3 of them with 2 of 5 nodes out
  overlaps              0
  lost updates          0 (10 made, the record counts 10)
  tokens out of order   0
  longest wait          1.5 s, of worker 2
  longest standstill    80 ms in which nobody acquired the lock
nodes: test servers
  node 1   votes         never touched
  node 2   votes         killed at 0.4, back empty at 1.0, admitted at 7.0 s
  node 3   votes         never touched
  node 4   votes         never touched
  node 5   votes         never touched
nothing was violated`
	if got := r.Summary(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	r.Interrupted = true
	if got := r.Summary(); !strings.HasSuffix(got, "\ninterrupted; nothing was violated so far") {
		t.Errorf("an interrupted run ends with:\n%s", got)
	}
}
