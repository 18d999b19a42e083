package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/markdown"
)

const (
	root  = "../.."
	pages = root + "/docs/guides"
)

// tested are the folders whose tests run what the pages show of Go.
var tested = []string{"test/guides", "interop", "fence/guardtest", "examples/cron-once", "examples/testing", "internal/locktest/enginetest"}

func everyPage(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pages + "/*.md")
	if err != nil || len(files) < 2 {
		t.Fatal("no pages: ", err)
	}
	texts := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(text)
	}
	return texts
}

// sources returns the Go files of a folder, one after the other.
func sources(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go in %s: %v", folder, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(string(text))
	}
	return all.String()
}

// What the pages show of Go is a piece of a file that the tests compile and run.
func TestCodeIsTested(t *testing.T) {
	var code strings.Builder
	for _, folder := range tested {
		code.WriteString(sources(t, folder))
	}
	shown := 0
	for page := range everyPage(t) {
		blocks, err := markdown.Blocks(filepath.Join(pages, page), "go")
		if err != nil {
			continue // it shows none
		}
		for _, b := range blocks {
			shown++
			if !strings.Contains(code.String(), "\n"+b.Text) {
				t.Errorf("%v: this is in no file of %q:\n%s", b, tested, b.Text)
			}
		}
	}
	if shown < 5 {
		t.Errorf("%d blocks", shown)
	}
}

// The first page lists the others, and README.md leads to it.
func TestPagesAreListed(t *testing.T) {
	texts := everyPage(t)
	for page := range texts {
		if page != "README.md" && !strings.Contains(texts["README.md"], "]("+page+")") {
			t.Errorf("README.md does not list %s", page)
		}
	}
	readme, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "](docs/guides/README.md)") {
		t.Error("the README does not lead to the guides")
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// named is a test of which a page says where it is; mutation, a rule that a model is run without.
	named    = regexp.MustCompile("`(Test\\w+)`")
	mutation = regexp.MustCompile("`([A-Z]+_[A-Z_]+)`")
)

// anchor is what a heading is linked by.
func anchor(heading string) string {
	heading = strings.ToLower(strings.ReplaceAll(heading, "`", ""))
	return strings.ReplaceAll(regexp.MustCompile(`[^\w -]`).ReplaceAllString(heading, ""), " ", "-")
}

// Links lead to what is there.
func TestLinks(t *testing.T) {
	for page, text := range everyPage(t) {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, section := found[1], strings.TrimPrefix(found[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := filepath.Join(pages, target)
			if target == "" {
				file = filepath.Join(pages, page)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			if section == "" {
				continue
			}
			linked, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
				continue
			}
			known := false
			for _, h := range heading.FindAllStringSubmatch(string(linked), -1) {
				known = known || anchor(h[1]) == section
			}
			if !known {
				t.Errorf("%s: %s has no section %q", page, target, section)
			}
		}
	}
}

// The tests and the models' rules that the pages name exist: in the folders that a page names, or
// else in those of the guides.
func TestNamesExist(t *testing.T) {
	folders := []string{"test/guides", "test/faults", "test/restart", "test/topology", "test/locking", "internal/clock", "internal/quorum", "fence/guardtest", "interop", "cmd/redlatch", "zookeeper", "etcd"}
	model, code := sources(t, "spec"), make(map[string]string)
	for _, folder := range folders {
		code[folder] = sources(t, folder)
	}
	names := 0
	for page, text := range everyPage(t) {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			names++
			known := false
			for _, folder := range folders {
				said := strings.Contains(text, folder)
				known = known || said && strings.Contains(code[folder], "\nfunc "+found[1]+"(")
			}
			if !known {
				t.Errorf("%s: there is no %s in the folders it names", page, found[1])
			}
		}
		for _, found := range mutation.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(found[1], "REDLATCH_") && !strings.Contains(model, `"`+found[1]+`"`) {
				t.Errorf("%s: the models have no %s", page, found[1])
			}
		}
	}
	if names < 10 {
		t.Errorf("%d tests are named", names)
	}
}

// What the pages have of figures is what the page says that measured them.
func TestFigures(t *testing.T) {
	texts := everyPage(t)
	for _, tt := range []struct{ page, says, source, has string }{
		{"the-argument.md", "18.4 % of them, of 18.6 %", "docs/fencing.md", "unguarded 18.6 % of acknowledged updates lost; guarded on writes only, the textbook picture, still 18.4 %"},
		{"the-argument.md", "4555 of 84 796", "docs/torture.md", "4555 of 84 796 without"},
		{"the-argument.md", "0 of 84 639", "docs/torture.md", "0 of 84 639 behind a token"},
		{"the-argument.md", "42 overlaps under a stepped clock", "docs/torture.md", "with a node's clock stepped forward under the holder, 42 |"},
	} {
		source, err := os.ReadFile(filepath.Join(root, tt.source))
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Join(strings.Fields(texts[tt.page]), " "); !strings.Contains(says, tt.says) {
			t.Errorf("%s does not say %q", tt.page, tt.says)
		}
		if !strings.Contains(string(source), tt.has) {
			t.Errorf("%s says %q, and %s has no %q", tt.page, tt.says, tt.source, tt.has)
		}
	}
}
