package topology

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A slot has come to a master that hangs, with its admission key, and a replica takes the master's place, where somebody
// locks. The master goes on, is to follow that one but never reaches it, takes its slots back, and forgets at once that it
// was a replica. It has received nothing since it started, and lacks what the other one granted.
func TestClusterTakeoverByAReplicaThatReceivedNothing(t *testing.T) {
	t.Parallel()
	eachRivals(t, 2*fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
		c := newHurtCluster(t, binary, 1, ttl, "--repl-backlog-ttl", "1")
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		name := storm.NameAt(0)
		r := newRivals(t, c.config, name, busy)
		master, replica := c.Masters[1], c.Replicas[1]
		// The admission key is written anew when the masters have been up for long enough for their clocks to differ.
		for begin := locktest.ServerTime(t, master); locktest.ServerTime(t, master).Sub(begin) < 5*time.Second; {
			lock, err := lockSoon(t, holder, name)
			must(t, err)
			locktest.Unlock(t, lock)
		}
		must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), master, nil))
		must(t, master.Pause())
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), replica))
		var held *redlatch.Lock
		locktest.Await(t, "the lock is held at the new master", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = holder.Admit(ctx, storm.Node) // which may ask the one that hangs: then the wait passes
			lock, err := holder.TryLock(t.Context(), name, redlatch.WithoutRenewal())
			held = lock
			return err == nil
		})
		replica.Kill()
		must(t, master.Resume())
		replication := func(field, value string) func() bool {
			return func() bool {
				info, err := master.Info("replication")
				return err == nil && info[field] == value
			}
		}
		locktest.Await(t, "the former master is a replica", replication("role", "slave"))
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), master))
		locktest.Await(t, "it forgets that it was promoted", replication("second_repl_offset", "-1"))
		return r.chase(t, held, c.d)
	})
}
