package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var writeCosts = flag.Bool("write-costs", false, "write the ratios of BenchmarkEngines into the table of docs/engines.md")

const enginesPage = "../docs/engines.md"

// costsBegin is what the table is after.
const costsBegin = "<!-- The table is written by make engine-costs. -->\n\n"

// costRows are the titles of the table's rows: the engines, and redlatch beside the locks of their own libraries.
func costRows() (titles []string) {
	for _, e := range engines {
		titles = append(titles, e.name)
	}
	for _, e := range engines {
		if e.redlatch != "" {
			titles = append(titles, e.redlatch+", to "+e.name)
		}
	}
	return titles
}

// costTable is a table of a page: cells by row and column, both with their titles.
type costTable struct {
	before, after string
	cells         [][]string
}

func parseCosts(page string) (t costTable, err error) {
	before, rest, ok := strings.Cut(page, costsBegin)
	if !ok {
		return t, fmt.Errorf("the page has no %q", costsBegin)
	}
	t.before = before + costsBegin
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rest = strings.TrimPrefix(rest, line)
		var row []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		t.cells = append(t.cells, row)
	}
	t.after = rest
	if len(t.cells) < 2 {
		return t, fmt.Errorf("nothing follows %q", costsBegin)
	}
	t.cells = slices.Delete(t.cells, 1, 2) // the line under the titles
	return t, nil
}

func (t costTable) String() string {
	var b strings.Builder
	b.WriteString(t.before)
	for i, row := range t.cells {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|--:", len(row)-1) + "|\n")
		}
	}
	return b.String() + t.after
}

// check says where the table does not have the rows and columns of the suite, each with a ratio.
func (t costTable) check() error {
	titles := []string{""}
	for _, c := range costs {
		titles = append(titles, c.title)
	}
	if !slices.Equal(t.cells[0], titles) {
		return fmt.Errorf("its columns are %q, and the suite's %q", t.cells[0], titles)
	}
	rows := costRows()
	if len(t.cells) != len(rows)+1 {
		return fmt.Errorf("it has %d rows, and the suite %d", len(t.cells)-1, len(rows))
	}
	for i, row := range t.cells[1:] {
		if row[0] != rows[i] || len(row) != len(titles) {
			return fmt.Errorf("its row %d is %q, and the suite's %q", i+1, row, rows[i])
		}
		for _, cell := range row[1:] {
			var ratio float64
			if n, err := fmt.Sscanf(cell, "%f", &ratio); n != 1 || ratio <= 0 {
				return fmt.Errorf("%q is no ratio: %w", cell, err)
			}
		}
	}
	return nil
}

// set sets the column of a cost.
func (t costTable) set(title string, ratios []float64) {
	column := 1 + slices.IndexFunc(costs, func(c cost) bool { return c.title == title })
	for i, ratio := range ratios {
		t.cells[i+1][column] = fmt.Sprintf("%.3g", ratio)
	}
}

// writeCost writes a column.
func writeCost(title string, ratios []float64) error {
	text, err := os.ReadFile(enginesPage)
	if err != nil {
		return err
	}
	t, err := parseCosts(string(text))
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return err
	}
	t.set(title, ratios)
	return os.WriteFile(enginesPage, []byte(t.String()), 0o644)
}

// The page has what the suite measures.
func TestCosts(t *testing.T) {
	text, err := os.ReadFile(enginesPage)
	if err != nil {
		t.Fatal(err)
	}
	table, err := parseCosts(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := table.check(); err != nil {
		t.Error(err)
	}
	if table.String() != string(text) {
		t.Error("written again, the page is another")
	}
	ratios := make([]float64, len(costRows()))
	for i := range ratios {
		ratios[i] = float64(i + 1)
	}
	table.set(costs[1].title, ratios)
	again, err := parseCosts(table.String())
	if err != nil || again.check() != nil || again.cells[1][2] != "1" || again.cells[len(ratios)][2] != fmt.Sprint(len(ratios)) {
		t.Errorf("a column was set, and it is %q, %v", again.cells, err)
	}
	for what, spoil := range map[string]func(c [][]string) [][]string{
		"a row is missing":  func(c [][]string) [][]string { return c[:len(c)-1] },
		"a row of another":  func(c [][]string) [][]string { c[1][0] = "another"; return c },
		"a column":          func(c [][]string) [][]string { c[0][1] = "another"; return c },
		"a cell has a word": func(c [][]string) [][]string { c[1][1] = "quick"; return c },
	} {
		wrong, err := parseCosts(string(text))
		if err != nil {
			t.Fatal(err)
		}
		wrong.cells = spoil(wrong.cells)
		if wrong.check() == nil {
			t.Errorf("%s: nothing is said", what)
		}
	}
}
