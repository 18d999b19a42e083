package restart

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A lock that is held goes on through a rolling restart that is done as the page says: the next node is
// restarted only when the lock has been extended since the one before votes again. Before that it is not
// on that node.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(page), "\n| rolling upgrade |")
	row, _, _ = strings.Cut(row, "\n")
	waits := strings.Contains(row, "for the longest TTL")
	locktest.UntilKept(t, 20, func(int) error { return rolled(t, waits) })
}

// rolled restarts two of three nodes, one after the other, and returns why the lock was lost.
func rolled(t *testing.T, waits bool) (lost error) {
	nodes := redistest.Nodes(t, 3)
	c := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(nodes)...), 5*time.Second)
	client := locktest.Open(t, c)
	locktest.Vouch(t, client, "n0", "n1", "n2")
	lock := locktest.TryLock(t, client, "job", redlatch.WithoutRenewal())
	extend := func() error {
		err := lock.Extend(t.Context(), c.MaxTTL)
		if errors.Is(err, redlatch.ErrLost) {
			lost = err
		}
		return err
	}
	for _, n := range nodes[:2] {
		locktest.KillAndRestart(t, n)
		locktest.Await(t, "all vote again", func() bool {
			if extend(); lost != nil {
				return true
			}
			for _, r := range locktest.Examine(t, c) {
				if r.Status != doctor.StatusAdmitted && r.Status != doctor.StatusAdmissible {
					return false
				}
			}
			return true
		})
		if waits {
			locktest.Await(t, "the lock was extended there, too", func() bool {
				return lost != nil || extend() == nil && locktest.Value(t, n, "job") != ""
			})
		}
		if lost != nil {
			return lost
		}
	}
	locktest.Unlock(t, lock)
	return nil
}
