package report

import (
	"fmt"
	"strings"
)

// Text returns the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	for _, row := range r.rows() {
		line := fmt.Sprintf("  %-22s  %-14s  %s", row.Name, row.Value, row.Note)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteString(r.Verdict() + "\n")
	for _, v := range r.Violations() {
		b.WriteString("  violated: " + v + "\n")
	}
	if !r.Interrupted {
		for _, w := range r.Unproved() {
			b.WriteString("  not proved: " + w + "\n")
		}
	}
	if r.LeftOut != "" {
		b.WriteString("  left out: " + r.LeftOut + "\n")
	}
	return b.String()
}
