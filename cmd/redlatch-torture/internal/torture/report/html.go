package report

import (
	"embed"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
)

//go:embed page
var pageFiles embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"css": func() (template.CSS, error) {
		b, err := pageFiles.ReadFile("page/page.css")
		return template.CSS(b), err
	},
	"js": func() (template.JS, error) { b, err := pageFiles.ReadFile("page/page.js"); return template.JS(b), err },
}).ParseFS(pageFiles, "page/page.html"))

// HTML writes the report as one page that needs no other file.
func (r *Report) HTML(w io.Writer) error {
	tone := "good"
	switch {
	case len(r.Violations()) > 0:
		tone = "bad"
	case !r.OK():
		tone = "fair"
	}
	return page.Execute(w, map[string]any{
		"Report": r, "Verdict": r.Verdict(), "Tone": tone, "Rows": r.rows(), "Violations": r.Violations(),
		"Unproved": r.unprovedUnlessInterrupted(), "Date": r.Started.Format("2 January 2006, 15:04 MST"),
		"Again": r.again(), "Faults": r.faultList(), "Data": r.data(),
	})
}

func (r *Report) unprovedUnlessInterrupted() []string {
	if r.Interrupted {
		return nil
	}
	return r.Unproved()
}

// listed is a fault in the page's list.
type listed struct {
	ID       int
	At, For  float64 // s
	Kind     string
	Whom     string // the nodes or workers
	Detail   string
	From, To int64 // as in data
}

// mostListed is the most faults in the list. The timeline has all of them.
const mostListed = 2000

func (r *Report) faultList() []listed {
	var list []listed
	for _, f := range r.History.Faults[:min(len(r.History.Faults), mostListed)] {
		list = append(list, listed{
			ID: f.ID, Kind: f.Kind, Whom: r.whom(f), Detail: f.Detail + f.Err,
			At: time.Duration(f.Began - r.History.Start).Seconds(), For: time.Duration(f.Ended - f.Began).Seconds(),
			From: r.tick(f.Began), To: r.tick(f.Ended),
		})
	}
	return list
}

// data is what the page draws the timeline from. Times are in tenths of a millisecond
// since the start.
type data struct {
	Length   int64      `json:"length"`
	Nodes    []string   `json:"nodes"`
	Workers  int        `json:"workers"`
	Names    []string   `json:"names"`
	Holds    [][]int64  `json:"holds"` // of each name: of each hold the start after that of the last, length, worker
	Faults   []fault    `json:"faults"`
	Overlaps [][4]int64 `json:"overlaps"` // name, start, length, 1 if outside the assumptions
	Up       [][2]int64 `json:"up"`       // times in which a quorum was up
	Probes   [][2]int64 `json:"probes"`   // tries that failed
}

type fault struct {
	Kind    string `json:"kind"`
	Nodes   []int  `json:"nodes"`
	Workers []int  `json:"workers"`
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	Out     int64  `json:"out"`
	Split   bool   `json:"split"`
	Detail  string `json:"detail"`
}

// tick converts a time of the history to one of data.
func (r *Report) tick(t int64) int64 { return (t - r.History.Start) / 1e5 }

func (r *Report) data() data {
	h := r.History
	d := data{
		Length: r.tick(h.End), Nodes: []string{}, Workers: r.Workers, Names: make([]string, len(h.Names)),
		Holds: make([][]int64, len(h.Names)), Faults: []fault{}, Overlaps: [][4]int64{}, Up: [][2]int64{}, Probes: [][2]int64{},
	}
	for n := range h.Nodes {
		d.Nodes = append(d.Nodes, h.Label(n+1))
	}
	place := map[string]int{}
	for i, name := range h.Names {
		place[name], d.Names[i], d.Holds[i] = i, name, []int64{}
	}
	last := make([]int64, len(h.Names))
	for _, hold := range h.Holds {
		i, ok := place[hold.Name]
		if !ok {
			continue
		}
		from, to := r.tick(hold.From), r.tick(hold.End)
		d.Holds[i] = append(d.Holds[i], from-last[i], to-from, int64(hold.Worker))
		last[i] = from
	}
	for _, f := range h.Faults {
		d.Faults = append(d.Faults, fault{
			Kind: f.Kind, Nodes: orEmpty(f.Nodes), Workers: orEmpty(f.Workers), From: r.tick(f.Began), To: r.tick(f.Ended),
			Out: max(0, r.tick(f.Out)), Split: f.Split, Detail: f.Detail,
		})
	}
	for outside, list := range [][]judge.Overlap{r.Findings.Overlaps, r.Findings.Outside} {
		for _, o := range list {
			d.Overlaps = append(d.Overlaps, [4]int64{int64(place[o.Name]), r.tick(o.At), int64(o.For / 1e5), int64(outside)})
		}
	}
	for _, s := range h.QuorumUp() {
		d.Up = append(d.Up, [2]int64{r.tick(s.From), r.tick(s.To)})
	}
	for _, p := range h.Probes {
		if !p.Acquired && p.End != 0 {
			d.Probes = append(d.Probes, [2]int64{r.tick(p.Call), r.tick(p.End)})
		}
	}
	return d
}

// count returns a word with numbers, in the plural if there are several: "node 2", "nodes 1, 3".
func count(sort string, numbers []int) string {
	if len(numbers) > 1 {
		sort += "s"
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return sort + " " + strings.Join(texts, ", ")
}

// orEmpty returns a copy of s that is not nil, so that its JSON is [] and not null.
func orEmpty(s []int) []int { return append([]int{}, s...) }

// nodes returns the nodes in words: "nodes 1, 3", or their labels.
func (r *Report) nodes(numbers []int) string {
	if len(r.History.Labels) == 0 {
		return count("node", numbers)
	}
	labels := make([]string, len(numbers))
	for i, n := range numbers {
		labels[i] = r.History.Label(n)
	}
	return strings.Join(labels, ", ")
}

// whom says in words which nodes or workers had the fault.
func (r *Report) whom(f history.Fault) string {
	text := ""
	if len(f.Nodes) > 0 {
		text = r.nodes(f.Nodes)
	}
	switch {
	case f.Split:
		text += " from " + count("worker", f.Workers)
	case len(f.Workers) > 0:
		text = count("worker", f.Workers)
	}
	return text
}
