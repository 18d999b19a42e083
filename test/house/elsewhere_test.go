package house

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// elsewherePage says what is wrong with others' primitives, and which tests show that it is not so here.
const elsewherePage = "docs/primitives-elsewhere.md"

var namedTest = regexp.MustCompile("`(Test\\w+)` in `([^`]+)`")

// checkElsewhere says which tests of the page's second table do not exist, and which row names none.
func checkElsewhere(project fs.FS) (wrong []string, err error) {
	page, err := fs.ReadFile(project, elsewherePage)
	if err != nil {
		return nil, err
	}
	p, err := readProject(project)
	if err != nil {
		return nil, err
	}
	_, table, found := strings.Cut(string(page), "| theirs | ours |\n|---|---|\n")
	if !found {
		return []string{"the page has no table of bugs"}, nil
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		tests := namedTest.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			wrong = append(wrong, "no test: "+line)
		}
		for _, test := range tests {
			if !slices.Contains(p.tests[test[2]], test[1]) {
				wrong = append(wrong, fmt.Sprintf("there is no %s in %s", test[1], test[2]))
			}
		}
	}
	return wrong, nil
}

// The tests that the page names exist.
func TestElsewhere(t *testing.T) {
	wrong, err := checkElsewhere(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
}

func TestElsewhereCheck(t *testing.T) {
	const head = "| | A |\n|---|---|\n\n| theirs | ours |\n|---|---|\n"
	for name, tt := range map[string]struct{ page, want string }{
		"all is well": {head + "| x | `TestA` in `b` |\n", ""},
		"no such":     {head + "| x | `TestA` in `b`<br>`TestB` in `b` |\n", "there is no TestB in b"},
		"elsewhere":   {head + "| x | `TestA` in `c` |\n", "there is no TestA in c"},
		"none":        {head + "| x | many |\n", "no test: | x | many |\n"},
		"no table":    {"", "the page has no table of bugs"},
	} {
		wrong, err := checkElsewhere(fstest.MapFS{elsewherePage: {Data: []byte(tt.page)}, "b/b_test.go": {Data: []byte("func TestA(t *testing.T) {}\n")}})
		if got := strings.Join(wrong, "\n"); err != nil || got != tt.want {
			t.Errorf("%s: said %q, %v, want %q", name, got, err, tt.want)
		}
	}
}
