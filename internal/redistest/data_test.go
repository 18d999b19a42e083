package redistest

import (
	"path/filepath"
	"testing"
)

// A copy is of its moment, with an append-only file and with a snapshot, and is loaded.
func TestServerRestartsWithAnOldCopy(t *testing.T) {
	for name, args := range map[string][]string{"append-only file": {"--appendonly", "yes", "--appendfsync", "always"}, "snapshot": nil} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, o Options) {
				o.Args = args
				s := New(t, o)
				do(t, s, "SET", "k", "old")
				if args == nil {
					do(t, s, "SAVE")
				}
				copied := filepath.Join(t.TempDir(), "copy")
				must(t, s.CopyData(copied))
				do(t, s, "SET", "k", "new")
				must(t, s.RestartWith(t.Context(), copied))
				want(t, "GET after the copy was loaded", do(t, s, "GET", "k"), "old")
				if err := s.CopyData(copied); err == nil {
					t.Error("a copy was written over another")
				}
				want(t, "GET of a server that was not copied", do(t, s, "GET", "k"), "old")
			})
		})
	}
}
