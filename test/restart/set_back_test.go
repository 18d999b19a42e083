package restart

import (
	"os"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server that is set back to an earlier state of its memory, as by a snapshot of its virtual machine,
// is the same run, and does not show that it has forgotten locks: the page with what there is only a
// word for says so.
func TestServerSetBack(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Args: []string{"--enable-debug-command", "yes"}})
	c := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), locktest.TTL)
	one, two := locktest.Open(t, c), locktest.Open(t, c)
	locktest.Vouch(t, one, "n0")
	locktest.Unlock(t, locktest.TryLock(t, one, "before"))
	locktest.Do(t, server, "SAVE")
	lock := locktest.TryLock(t, one, "job")
	locktest.Do(t, server, "DEBUG", "RELOAD", "NOSAVE")
	_, err := locktest.TryInTime(t, two, "job")
	page, err2 := os.ReadFile("../../docs/restarts.md")
	if err2 != nil {
		t.Fatal(err2)
	}
	_, risks, _ := strings.Cut(string(page), "## What there is only your word for")
	if err == nil && lock.Err() == nil && !strings.Contains(risks, "| A virtual machine that is set back ") {
		t.Error("a second holder, and docs/restarts.md does not say that it is possible")
	}
}
