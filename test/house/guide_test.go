package house

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// Where the code of the guide to tests is run.
const (
	testingGuide = "docs/testing.md"
	guideCode    = "examples/testing"
)

// checkGuide returns the Go code of the guide that is in no file of its example, and how many
// pieces there are.
func checkGuide(project fs.FS) (missing []string, pieces int, err error) {
	page, err := fs.ReadFile(project, testingGuide)
	if err != nil {
		return nil, 0, err
	}
	names, err := fs.Glob(project, path.Join(guideCode, "*.go"))
	if err != nil {
		return nil, 0, err
	}
	var code strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(project, name)
		if err != nil {
			return nil, 0, err
		}
		code.Write(text)
	}
	for i, rest := range strings.Split(string(page), "\n```go\n") {
		if i == 0 {
			continue
		}
		pieces++
		piece, _, ended := strings.Cut(rest, "\n```\n")
		if !ended || !strings.Contains(code.String(), "\n"+piece+"\n") {
			missing = append(missing, piece)
		}
	}
	return missing, pieces, nil
}

// What the guide shows is what its tests run.
func TestGuideIsRun(t *testing.T) {
	missing, pieces, err := checkGuide(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if pieces == 0 {
		t.Errorf("%s has no code", testingGuide)
	}
	for _, piece := range missing {
		t.Errorf("no file of %s has this:\n%s", guideCode, piece)
	}
}

func TestGuideCheck(t *testing.T) {
	for _, tt := range []struct {
		page            string
		missing, pieces int
	}{
		{"Text.\n```go\nfunc A() {\n}\n```\nMore.\n```sh\ngo test\n```\n", 0, 1},
		{"Text.\n```go\nfunc A() {\n}\n```\n\n```go\nfunc B() {\n}\n```\n", 1, 2},
		{"Text.\n```go\nfunc A() {\n```\n\n```go\nunc A() {\n```\n", 1, 2},
		{"Text.\n```go\nfunc A() {\n", 1, 1},
	} {
		missing, pieces, err := checkGuide(fstest.MapFS{
			testingGuide:        {Data: []byte(tt.page)},
			guideCode + "/a.go": {Data: []byte("package a\n\nfunc A() {\n}\n")},
		})
		if err != nil || len(missing) != tt.missing || pieces != tt.pieces {
			t.Errorf("%q: %q of %d, %v", tt.page, missing, pieces, err)
		}
	}
}
