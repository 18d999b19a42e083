package enginetest

import (
	"os"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// cleanups are run after all tests, the last first.
var cleanups []func()

// sharedTB stands in for a test, as what is shared outlives that.
type sharedTB struct{ redistest.TB }

func (sharedTB) Cleanup(f func()) { cleanups = append(cleanups, f) }

// Shared has servers started once for all tests that do no harm to them, and stopped after all tests.
type Shared[E any] struct {
	once    sync.Once
	servers *E
}

// Of returns them. start is called the first time, with a folder that is deleted after all tests.
func (s *Shared[E]) Of(t *testing.T, start func(t redistest.TB, folder string) *E) *E {
	t.Helper()
	s.once.Do(func() {
		folder, err := os.MkdirTemp("", "redlatch-engine-")
		if err != nil {
			t.Fatal(err)
		}
		cleanups = append(cleanups, func() { os.RemoveAll(folder) })
		s.servers = start(sharedTB{t}, folder)
	})
	if s.servers == nil {
		t.Fatal("the servers did not start")
	}
	return s.servers
}
