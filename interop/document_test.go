package interop

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table in the documentation has a row for each library, with the version
// that these tests run, and no other.
func TestDocumentedTable(t *testing.T) {
	text, err := os.ReadFile("../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string][]string) // version, nodes and template by name
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		if len(cells) < 5 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Library") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		documented[cells[1]] = cells[2:5]
	}
	for _, l := range libraries {
		want, row := []string{l.version(t), fmt.Sprint(l.nodes), l.template}, documented[l.name]
		delete(documented, l.name)
		if row != nil && !l.pinned && row[0] != want[0] {
			t.Logf("%s: run with %s, documented with %s", l.name, want[0], row[0])
			want[0] = row[0]
		}
		if strings.Join(row, " ") != strings.Join(want, " ") {
			t.Errorf("%s: documented with %q, run with %q", l.name, row, want)
		}
	}
	for name := range documented {
		t.Errorf("%s is in the table and is not run", name)
	}
	if on := npm("ioredis")(t); !strings.Contains(string(text), "ioredis "+on) {
		t.Errorf("the npm libraries run on ioredis %s, and the documentation does not say so", on)
	}
}
