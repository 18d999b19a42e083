package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// acknowledging is a connection to a server whose replicas acknowledge everything.
type acknowledging struct {
	driver.Conn
	history string
}

func (a *acknowledging) Batch(context.Context, ...[]string) ([]driver.Reply, []error) {
	return []driver.Reply{{Text: a.history}, {Kind: driver.Int, Int: 1}}, make([]error, 2)
}

// Replicas acknowledge what their master has. A vote counts only if that has not been another
// server, or a replica, since it voted.
func TestReplicasOfAnotherHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		voted := (&evidence{info: info{"run_id": "a", "master_replid": "r"}}).history()
		for history, counts := range map[string]bool{"a r": true, "b r": false, "a s": false, "": false} {
			conn := &acknowledging{history: history}
			n := New(nil, Options{slotTag: "7", Replicas: Replicas{Conn: conn, Want: 1, Limit: time.Second}})
			err := n.acknowledged(t.Context(), &sighting{run: "a", history: voted})
			if counts != (err == nil) || !counts && !errors.Is(err, errReconnected) {
				t.Errorf("the master has the history %q: %v", history, err)
			}
			n.end()
			n.background.Wait()
		}
	})
}
