package house

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// enginesPage says what holds on which engine.
const enginesPage = "docs/engines.md"

// checkEngines says which tests of the page's table do not exist, and where one is missing: each
// row that says something is followed by one with the tests that show it.
func checkEngines(project fs.FS) (wrong []string, err error) {
	page, err := fs.ReadFile(project, enginesPage)
	if err != nil {
		return nil, err
	}
	p, err := readProject(project)
	if err != nil {
		return nil, err
	}
	promise, rows := "", 0
	promises, _, _ := strings.Cut(string(page), "<!--") // what follows is a table of costs, which module bench checks
	for line := range strings.Lines(promises) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| | one server") {
			continue
		}
		rows++
		first, tests := strings.TrimSpace(cells[0]), strings.HasPrefix(line, "| | ")
		if !tests {
			if promise != "" {
				wrong = append(wrong, promise+": no row with its tests")
			}
			promise = first
			continue
		}
		for _, cell := range cells {
			for one := range strings.SplitSeq(strings.Trim(cell, "| \n"), "<br>") {
				found := testCell.FindStringSubmatch(one)
				switch {
				case one == "" || one == "–":
				case found == nil:
					wrong = append(wrong, fmt.Sprintf("%s: %s names no test", promise, one))
				case !slices.Contains(p.tests[found[2]], found[1]):
					wrong = append(wrong, fmt.Sprintf("%s: there is no %s in %s", promise, found[1], found[2]))
				}
			}
		}
		promise = ""
	}
	if rows == 0 {
		wrong = append(wrong, "the page has no table")
	}
	return wrong, nil
}

// The tests that the page of engines names exist.
func TestEngines(t *testing.T) {
	wrong, err := checkEngines(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
}

func TestEnginesCheck(t *testing.T) {
	const head = "| | one server | Redlock |\n|---|---|---|\n"
	for name, tt := range map[string]struct{ page, want string }{
		"all is well": {"| A | yes | no |\n| | `TestA` in `b` | – |\n", ""},
		"no such":     {"| A | yes | no |\n| | `TestA` in `b`<br>`TestB` in `b` | – |\n", "A: there is no TestB in b"},
		"words":       {"| A | yes | no |\n| | many | – |\n", "A: many names no test"},
		"no tests":    {"| A | yes | no |\n| B | yes | no |\n| | `TestA` in `b` | – |\n", "A: no row with its tests"},
		"no table":    {"", "the page has no table"},
	} {
		wrong, err := checkEngines(fstest.MapFS{
			enginesPage:   {Data: []byte(head + tt.page)},
			"b/b_test.go": {Data: []byte("func TestA(t *testing.T) {}\n")},
		})
		if got := strings.Join(wrong, "\n"); err != nil || got != tt.want {
			t.Errorf("%s: said %q, %v, want %q", name, got, err, tt.want)
		}
	}
}
