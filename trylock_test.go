package redlatch_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
)

// Where the votes are split each time, TryLock rests for no longer than its documentation says.
func TestTryLockRestsAsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("acquire.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)// TryLock makes one try.*? random pauses, of (\S+) in all at most`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the documentation of TryLock does not say how long it rests")
	}
	documented, err := time.ParseDuration(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	client := locktest.OpenIn(t, redlatch.Config{Nodes: []string{"redis://127.0.0.1:1"}}, hook.Surroundings{
		Draw: func(d time.Duration) time.Duration { return d - 1 },
	})
	if longest := redlatch.RestsOfTryLock(client); longest > documented {
		t.Errorf("it rests for %v, and its documentation says %v", longest, documented)
	}
}
