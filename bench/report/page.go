package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/redlatch/redlatch/bench/figures"
)

//go:embed page.md.tmpl
var text string

// page is the figures of runs, and the charts that the page has asked for.
type page struct {
	Runs  []figures.Run
	by    map[key][]float64
	rows  map[string][]string // of a benchmark, in the order in which they were recorded
	drawn map[string]*chart
}

type key struct{ benchmark, row, metric string }

func newPage(runs []figures.Run) *page {
	p := &page{Runs: runs, by: make(map[key][]float64), rows: make(map[string][]string), drawn: make(map[string]*chart)}
	for _, run := range runs {
		for _, f := range run.Figures {
			p.by[key{f.Benchmark, f.Row, f.Metric}] = f.Rounds
			if !slices.Contains(p.rows[f.Benchmark], f.Row) {
				p.rows[f.Benchmark] = append(p.rows[f.Benchmark], f.Row)
			}
		}
	}
	return p
}

func (p *page) markdown() ([]byte, error) {
	t, err := template.New("benchmarks.md").Funcs(template.FuncMap{
		"list": func(words ...string) []string { return words }, "thousands": thousands, "machine": p.machine, "table": p.table, "across": p.across,
		"cases": p.cases, "most": p.most, "chart": p.chartAcross, "chartRows": p.chartRows,
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// busyAbove is the part of the processors' time, in %, beyond which others have spoilt a run.
const busyAbove = 5

// machine says where and when the runs were, and whether the machine was theirs.
func (p *page) machine() string {
	var b strings.Builder
	first, last := p.Runs[0], p.Runs[len(p.Runs)-1]
	fmt.Fprintf(&b, "| | |\n|---|---|\n| when | %s, for %s |\n", first.Time.Format("2 January 2006, 15:04 UTC"),
		last.Time.Add(time.Duration(last.Seconds*float64(time.Second))).Sub(first.Time).Round(time.Minute))
	fmt.Fprintf(&b, "| commit | %s |\n", first.Commit)
	fmt.Fprintf(&b, "| machine | %d processors, %s, %.0f GB; %s |\n", first.Processors, first.CPU, float64(first.Memory)/1e9, first.System)
	var versions []string
	for _, v := range first.Versions {
		versions = append(versions, v.Name+" "+v.Version)
	}
	fmt.Fprintf(&b, "| versions | %s |\n", strings.Join(versions, ", "))
	busy := false
	for i, run := range p.Runs {
		fmt.Fprintf(&b, "| run %d | `%s`, %.0f s. Load average of 1, 5 and 15 minutes %s before, %s after; other programs of the machine took %.1f %% of the processors' time, the virtual machine's host %.1f %% |\n",
			i+1, strings.ReplaceAll(run.Command, "|", `\|`), run.Seconds, run.Begin.Load, run.End.Load, run.Others, run.Stolen)
		busy = busy || run.Others > busyAbove || run.Stolen > busyAbove
	}
	if busy {
		fmt.Fprintf(&b, "\n**The machine was busy with other things: microseconds and locks a second are worse here than they would be, and spreads wider. Ratios suffer least.**\n")
	}
	return b.String()
}

const notMeasured = "*Not measured in these runs.*\n"

// table has the rows of a benchmark, by metrics, each under a title of its own where it is "metric=title".
func (p *page) table(benchmark string, metrics ...string) string {
	rows := p.rows[benchmark]
	if len(rows) == 0 {
		return notMeasured
	}
	var cells [][]string
	for _, row := range rows {
		line := []string{thousands(row)}
		for _, m := range metrics {
			line = append(line, cell(p.by[key{benchmark, row, metric(m)}]))
		}
		cells = append(cells, line)
	}
	return markdownTable(titles(metrics), cells)
}

// across has one metric by the rows of several benchmarks, each under a title, "benchmark=title".
func (p *page) across(m string, benchmarks ...string) string {
	head, rows := []string{""}, []string(nil)
	for _, b := range benchmarks {
		head = append(head, title(b))
		for _, row := range p.rows[metric(b)] {
			if p.by[key{metric(b), row, m}] != nil && !slices.Contains(rows, row) {
				rows = append(rows, row)
			}
		}
	}
	if len(rows) == 0 {
		return notMeasured
	}
	var cells [][]string
	for _, row := range rows {
		line := []string{row}
		for _, b := range benchmarks {
			line = append(line, cell(p.by[key{metric(b), row, m}]))
		}
		cells = append(cells, line)
	}
	return markdownTable(head, cells)
}

// cases has metrics of one row by several benchmarks, a line for each, "benchmark = title".
func (p *page) cases(row string, benchmarks []string, metrics ...string) string {
	var cells [][]string
	for _, b := range benchmarks {
		line, measured := []string{title(b)}, false
		for _, m := range metrics {
			rounds := p.by[key{metric(b), row, metric(m)}]
			line, measured = append(line, cell(rounds)), measured || rounds != nil
		}
		if measured {
			cells = append(cells, line)
		}
	}
	if cells == nil {
		return notMeasured
	}
	return markdownTable(titles(metrics), cells)
}

// most is the greatest figure of a metric in all rounds of all benchmarks, "0" as "no".
func (p *page) most(m string) string {
	var all []float64
	for k, rounds := range p.by {
		if k.metric == m {
			all = append(all, rounds...)
		}
	}
	if len(all) == 0 {
		return "?"
	}
	if most := slices.Max(all); most > 0 {
		return "up to " + whole(most)
	}
	return "no"
}

// metric and title are the two sides of "nodes=1/callers=1 = 1 node": names have no spaces around =.
func metric(s string) string { m, _, _ := strings.Cut(s, " = "); return m }
func title(s string) string {
	m, title, ok := strings.Cut(s, " = ")
	if !ok {
		return m
	}
	return title
}

// titles returns the head of a table that has a column for each metric behind the first.
func titles(metrics []string) []string {
	head := []string{""}
	for _, m := range metrics {
		head = append(head, title(m))
	}
	return head
}

func markdownTable(head []string, cells [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|---|%s\n", strings.Join(head, " | "), strings.Repeat("--:|", len(head)-1))
	for _, line := range cells {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
	}
	return b.String()
}

// cell is the median of the rounds, with the least and the greatest in parentheses. All three are written in the
// same way. Memory below zero says no more than that other memory was freed meanwhile.
func cell(rounds []float64) string {
	if len(rounds) == 0 {
		return "–"
	}
	write := whole
	if slices.ContainsFunc(rounds, func(v float64) bool { return v != math.Trunc(v) }) {
		write = digits
	}
	median, least, greatest := spread(rounds)
	if median < 0 {
		return "< 0"
	}
	if write(least) == write(greatest) {
		return write(median)
	}
	return fmt.Sprintf("%s (%s–%s)", write(median), write(least), write(greatest))
}

func spread(rounds []float64) (median, least, greatest float64) {
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}

// digits has three digits, below 0.1 two, and more only before the point.
func digits(v float64) string {
	switch size := math.Abs(v); {
	case size >= 99.95:
		return whole(v)
	case size >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size >= 0.0995 || size == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 1-int(math.Floor(math.Log10(size))), 64)
	}
}

// whole has no digits after the point.
func whole(v float64) string { return thousands(strconv.FormatFloat(math.Round(v), 'f', 0, 64)) }

var long = regexp.MustCompile(`\d{5,}`)

// thousands has commas in all numbers of a text that have five digits or more.
func thousands(text string) string {
	return long.ReplaceAllStringFunc(text, func(number string) string {
		for i := len(number) - 3; i > 0; i -= 3 {
			number = number[:i] + "," + number[i:]
		}
		return number
	})
}

// chartAcross draws one metric of several benchmarks, "benchmark = title", a group of points each, with the rows
// in colours.
func (p *page) chartAcross(file, caption, m string, without []string, benchmarks ...string) string {
	c := &chart{title: caption, log: true}
	for _, b := range benchmarks {
		for _, row := range p.rows[metric(b)] {
			if p.by[key{metric(b), row, m}] != nil && !slices.Contains(c.series, row) && !slices.Contains(without, row) {
				c.series = append(c.series, row)
			}
		}
		c.groups = append(c.groups, title(b))
	}
	c.of = func(series, group int) []float64 { return p.by[key{metric(benchmarks[group]), c.series[series], m}] }
	return p.draw(file, c)
}

// chartRows draws metrics, "metric = title", by the rows of a benchmark.
func (p *page) chartRows(file, caption, benchmark string, lines bool, metrics ...string) string {
	rows := p.rows[benchmark]
	c := &chart{title: caption, lines: lines, log: true}
	for _, row := range rows {
		c.groups = append(c.groups, thousands(row))
	}
	for _, m := range metrics {
		c.series = append(c.series, title(m))
	}
	c.of = func(series, group int) []float64 {
		return p.by[key{benchmark, rows[group], metric(metrics[series])}]
	}
	return p.draw(file, c)
}

// draw is the image of a chart, "" where nothing was measured.
func (p *page) draw(file string, c *chart) string {
	if len(c.series) == 0 || len(c.groups) == 0 {
		return ""
	}
	p.drawn[file] = c
	return fmt.Sprintf("![%s](benchmarks/%s)", c.title, file)
}
