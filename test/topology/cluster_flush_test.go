package topology

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/storm"
)

// amid is a Cluster's connection on which something happens between two questions of one look at a
// slot: after its admission key was read, and before its master's record is.
type amid struct {
	*redisconn.Cluster
	happen func()
}

func (c amid) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if len(args) > 3 && args[1] == script.Inspect.Text && strings.Contains(args[3], ":deployment:") {
		c.happen()
	}
	return c.Cluster.Do(ctx, args...)
}

// A master's keys are deleted while a client looks at a slot that came to the master with its
// admission key: the client has read that key, which vouches for locks that are gone.
func TestClusterFlushAmidALook(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, 3*fixTTL/2)
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		held := locktest.TryLock(t, holder, storm.NameAt(0))
		// The lock is renewed while both masters are up, else nobody knows that the receiving one
		// has not restarted since.
		until := held.Until()
		locktest.Await(t, "the lock is renewed", func() bool { return held.Until().Sub(until) > 2*c.config.TTL/3 })
		must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(held.Name()), c.Masters[1], nil))

		flushed := false
		flush := sync.OnceFunc(func() {
			locktest.Do(t, c.Masters[1], "FLUSHALL")
			flushed = true
		})
		late := locktest.OpenIn(t, c.config, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
			options, _, err := redisconn.Parse(c.config.Nodes[0])
			options.ConnectTimeout = locktest.Patience
			return amid{redisconn.NewCluster(options), flush}, err
		}})
		_, err := late.TryLock(t.Context(), held.Name())
		switch {
		case err == nil && held.Err() == nil:
			t.Errorf("the lock has two holders: the first for another %v", time.Until(held.Until()))
		case err == nil:
			t.Error("the lock was granted at once, by a master that has lost its keys")
		case !flushed:
			t.Errorf("nothing was deleted: %v", err)
		default:
			t.Log(err)
		}
	})
}
