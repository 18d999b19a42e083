package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a mutation replaces occurs once, so that it breaks what it says.
func TestEditsFit(t *testing.T) {
	for m, e := range edits {
		text, err := os.ReadFile(filepath.Join("..", "script", e.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.was); n != 1 {
			t.Errorf("%v: %q occurs %d times in %s: the rule has moved, and its mutation must follow", m, e.was, n, e.file)
		}
	}
}
