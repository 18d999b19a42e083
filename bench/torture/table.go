package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// result is what the table needs of a report.
type result struct {
	name         string
	Servers      string
	Fired        map[string]int
	Availability float64
	Overall      float64 `json:"availability_overall"`
	Findings     struct {
		Acquisitions int
		Overlaps     []json.RawMessage
		Outside      []json.RawMessage `json:"overlaps_outside_assumptions"`
		Guarded      register          `json:"guarded_register"`
		Open         register          `json:"open_register"`
		Waits        struct {
			Median time.Duration `json:"median_ns"`
			P99    time.Duration `json:"p99_ns"`
		}
		Orphans []json.RawMessage
		Looks   int `json:"orphan_looks"`
	}
}

type register struct{ Writes, Lost, Refused int }

func read(path string) (result, error) {
	var r result
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// table compares results, a column each, as Markdown.
func table(results []result) string {
	rows := []struct {
		name string
		cell func(result) string
	}{
		{"faults", func(r result) string { return fmt.Sprint(sum(r.Fired)) }},
		{"acquisitions", func(r result) string { return fmt.Sprint(r.Findings.Acquisitions) }},
		{"overlaps", func(r result) string { return fmt.Sprint(len(r.Findings.Overlaps)) }},
		{"overlaps with a node's clock stepped", func(r result) string { return fmt.Sprint(len(r.Findings.Outside)) }},
		{"lost updates", func(r result) string {
			return fmt.Sprintf("%d of %d", r.Findings.Open.Lost, r.Findings.Open.Writes)
		}},
		{"lost updates, fenced", func(r result) string {
			if r.Findings.Guarded.Writes == 0 {
				return "no tokens"
			}
			return fmt.Sprintf("%d of %d", r.Findings.Guarded.Lost, r.Findings.Guarded.Writes)
		}},
		{"keys left behind", func(r result) string {
			return fmt.Sprintf("%d of %d looked for", len(r.Findings.Orphans), r.Findings.Looks)
		}},
		{"availability, a quorum up", func(r result) string { return fmt.Sprintf("%.2f %%", 100*r.Availability) }},
		{"availability, always", func(r result) string { return fmt.Sprintf("%.2f %%", 100*r.Overall) }},
		{"wait, median", func(r result) string { return millis(r.Findings.Waits.Median) }},
		{"wait, p99", func(r result) string { return millis(r.Findings.Waits.P99) }},
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(results)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.name)
		for _, r := range results {
			fmt.Fprintf(&b, " %s |", row.cell(r))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
