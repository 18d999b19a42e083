package restart

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server counts by its wall clock how long it has been up. If that is set only after the server has
// started, as at the start of a machine, its quarantine may be over at once: the pages say so.
func TestClockSetAfterTheStart(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{ClockShim: true})
	c := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), locktest.TTL)
	one, two := locktest.Open(t, c), locktest.Open(t, c)
	locktest.Vouch(t, one, "n0")
	lock := locktest.TryLock(t, one, "job")
	locktest.KillAndRestart(t, server)
	if err := server.StepClock(time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err := locktest.TryInTime(t, two, "job")
	if err != nil || lock.Err() != nil {
		return // late, or no longer so
	}
	for page, after := range map[string]string{
		"../../docs/restarts.md":          "## What there is only your word for",
		"../../docs/guides/five-nodes.md": "## Clocks",
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if _, said, _ := strings.Cut(string(text), after); !strings.Contains(said, "before its clock was set") {
			t.Errorf("a second holder, and %s does not say that a server must not start before its clock was set", page)
		}
	}
}
