package markdown

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const page = "# Page\n\n" +
	"```go\nif a {\n\tb()\n}\n```\n\n" +
	"```sh\nmake ci\n```\n" +
	"* in a list\n\n  ```go title\n  c()\n    d()\n\n  ```\n" +
	"```\nno language\n```\n"

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBlocks(t *testing.T) {
	file := write(t, page)
	for language, want := range map[string][]Block{
		"go": {{Line: 4, Text: "if a {\n\tb()\n}\n"}, {Line: 15, Text: "c()\n  d()\n\n"}},
		"sh": {{Line: 10, Text: "make ci\n"}},
		"":   {{Line: 20, Text: "no language\n"}},
	} {
		for i := range want {
			want[i].File, want[i].Language = file, language
		}
		got, err := Blocks(file, language)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", language, got, err, want)
		}
	}
}

func TestNoBlocks(t *testing.T) {
	file := write(t, page)
	if _, err := Blocks(file, "lua"); err == nil || err.Error() != file+" has no block of lua" {
		t.Errorf("of lua: %v", err)
	}
	file = write(t, "```go\na()\n")
	if _, err := Blocks(file, "go"); err == nil || err.Error() != file+":2: the block has no end" {
		t.Errorf("without an end: %v", err)
	}
	if _, err := Blocks("nowhere.md", "go"); err == nil {
		t.Error("a file that is not there has blocks")
	}
}
