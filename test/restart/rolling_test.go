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
	"github.com/redlatch/redlatch/oneshot"
)

// A lock that is held goes on through a rolling restart that is done as the page says: the next node is
// restarted only when the lock has been extended since the one before votes again. Before that it is not
// on that node.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	waits := strings.Contains(rollingUpgrade(t), "for the longest TTL")
	locktest.UntilKept(t, 20, func(int) error { return rolled(t, waits) })
}

// rollingUpgrade returns what the page says of a rolling upgrade.
func rollingUpgrade(t *testing.T) string {
	_, row, _ := strings.Cut(restartsPage(t), "\n| rolling upgrade |")
	row, _, _ = strings.Cut(row, "\n")
	return row
}

func restartsPage(t *testing.T) string {
	page, err := os.ReadFile("../../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
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

// A lock that is extended by its id is not given back to a node that restarted: it is lost with the second
// node, and the page says so.
func TestRollingRestartOfALockThatIsExtendedByItsID(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock := locktest.TryLock(t, client, "job", redlatch.WithoutRenewal())
	locktest.AwaitOn(t, lock, nodes...)
	id, err := lock.Detach()
	if err != nil {
		t.Fatal(err)
	}
	shots := oneshot.New(client)
	for i, kept := range []bool{true, false} {
		locktest.KillAndRestart(t, nodes[i])
		locktest.Await(t, "the nodes have answered, that one without the lock", func() bool {
			ok, err := shots.Extend(t.Context(), "job", id, locktest.TTL)
			return err == nil && ok == kept && locktest.Value(t, nodes[i], "job") == ""
		})
	}
	if row := rollingUpgrade(t); !strings.Contains(row, "`redlatch extend`") {
		t.Errorf("the page does not say so:%s", row)
	}
}
