package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What `redlatch-torture run --json` writes is found in the table.
func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	report := `{"fired": {"kill": 2, "stop": 3}, "availability": 0.5, "availability_overall": 0.25, "findings": {
		"acquisitions": 77, "overlaps": [{"name": "a"}], "overlaps_outside_assumptions": null,
		"guarded_register": {"writes": 0}, "open_register": {"writes": 40, "lost": 4},
		"waits": {"median_ns": 1500000, "p99_ns": 20000000}, "orphans": [{}, {}], "orphan_looks": 9}}`
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	r.name = "peer 1.0"
	got := table([]result{r})
	for _, want := range []string{
		"| | peer 1.0 |\n|---|---|\n| faults | 5 |", "| acquisitions | 77 |", "| overlaps | 1 |", "clock stepped | 0 |",
		"| lost updates | 4 of 40 |", "| no tokens |", "| 2 of 9 looked for |", "| 50.00 % |", "| 25.00 % |", "| 1.5 ms |", "| 20.0 ms |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if _, err := read(path + "x"); err == nil {
		t.Error("a report that is not there is read")
	}
}
