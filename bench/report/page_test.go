package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/figures"
)

const docs = "../../docs"

// The page and its charts are what the recorded figures make, and there are no others.
func TestPageIsOfTheFigures(t *testing.T) {
	want, err := files(filepath.Join(docs, "benchmarks/figures.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		have, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil || !bytes.Equal(have, text) {
			t.Errorf("docs/%s is not what the figures make, %v: run go run ./report in bench", name, err)
		}
	}
	charts, err := filepath.Glob(filepath.Join(docs, "benchmarks/*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range charts {
		if name := "benchmarks/" + filepath.Base(chart); want[name] == nil {
			t.Errorf("no page has docs/%s", name)
		}
	}
}

func TestPage(t *testing.T) {
	run := func(others float64) figures.Run {
		return figures.Run{
			Begin: figures.Begin{Commit: "abc", CPU: "a processor", Load: "0.1 0.2 0.3", Versions: []figures.Version{{Name: "Go", Version: "1.2"}}, Command: "go test -bench=A|B"},
			Figures: []figures.Figure{
				{Benchmark: "SideBySide/nodes=1/callers=1", Row: "floor", Metric: "x median", Rounds: []float64{1, 1}},
				{Benchmark: "SideBySide/nodes=1/callers=1", Row: "redlatch", Metric: "x median", Rounds: []float64{1.5, 1.25, 4}},
				{Benchmark: "SideBySide/nodes=5/callers=1", Row: "redsync", Metric: "x median", Rounds: []float64{2}},
			},
			End: figures.End{Seconds: 60, Load: "1 2 3", Others: others},
		}
	}
	p := newPage([]figures.Run{run(0)})
	text, err := p.markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| redlatch | 1.50 (1.25–4.00) | – | – | – |\n", "| floor | 1 | – | – | – |\n", "| redsync | – | – | 2 | – |\n",
		"| commit | abc |", "Go 1.2", "`go test -bench=A\\|B`", "0.1 0.2 0.3 before, 1 2 3 after", "for 1m0s", "![Median time", "](benchmarks/latency.svg)", notMeasured,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if names := slices.Sorted(maps.Keys(p.drawn)); !slices.Equal(names, []string{"latency.svg"}) {
		t.Errorf("the charts are %q", names)
	}
	svg, err := p.drawn["latency.svg"].svg()
	if err != nil || !bytes.Contains(svg, []byte(">redlatch<")) || !bytes.Contains(svg, []byte(">1 node,<")) || bytes.Contains(svg, []byte(">floor<")) {
		t.Errorf("the chart is %.300s, %v", svg, err)
	}
	const busy = "The machine was busy"
	if strings.Contains(string(text), busy) {
		t.Error("a quiet machine is called busy")
	}
	loud, err := newPage([]figures.Run{run(0), run(30)}).markdown()
	if err != nil || !strings.Contains(string(loud), busy) || !strings.Contains(string(loud), "30.0 % of the processors' time") {
		t.Errorf("a busy machine is not seen, %v", err)
	}
}

func TestWrite(t *testing.T) {
	folder, from := t.TempDir(), filepath.Join(t.TempDir(), "figures.jsonl")
	if err := write(from, folder); err == nil {
		t.Error("there are no figures, and nothing is said")
	}
	var b bytes.Buffer
	l, err := figures.NewLog(&b, figures.Begin{Time: time.Unix(0, 0)})
	if err == nil {
		err = l.Add(figures.Figure{Benchmark: "GrowthNodes/callers=64", Row: "1 node", Metric: "client, µs/lock", Rounds: []float64{3, 1, 2}})
	}
	if err == nil {
		err = l.End(figures.End{})
	}
	if err == nil {
		err = os.WriteFile(from, b.Bytes(), 0o666)
	}
	if err == nil {
		err = write(from, folder)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"benchmarks.md": "| 1 node | – | – | 2 (1–3) |", "benchmarks/nodes.svg": ">client<"} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q, %v", name, want, err)
		}
	}
}

func TestCell(t *testing.T) {
	for want, rounds := range map[string][]float64{
		"–": nil, "< 0": {-61150}, "0": {0}, "1": {1, 1}, "1 (0–2)": {0, 2, 1}, "0.012": {0.0123}, "0.030": {0.03}, "1.00": {0.999}, "0.50": {0.5}, "1.23": {1.234}, "10.0": {9.996},
		"12.3": {12.34}, "123": {123.4}, "1234": {1234}, "12,346": {12345.6}, "10,000": {9999.6}, "1,234,567": {1234567},
		"101": {100.5}, "1,000,000": {999999.6}, "4.00 (4.00–4.01)": {4, 4.006, 4}, "4.00": {4, 4.001}, "0.00 (0.00–0.50)": {0, 0.5, 0},
	} {
		if have := cell(rounds); have != want {
			t.Errorf("%v is %q, want %q", rounds, have, want)
		}
	}
	if m, least, most := spread([]float64{4, 1, 3, 2}); m != 2.5 || least != 1 || most != 4 {
		t.Errorf("the spread is %v, %v, %v", m, least, most)
	}
}
