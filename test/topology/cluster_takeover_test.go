package topology

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A replica that lacks its master's last writes takes its place, and the master takes
// it back with the data of the replica. Both processes and all connections live on.
func TestClusterTakeoverThereAndBack(t *testing.T) {
	t.Parallel()
	eachRivals(t, 2*fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
		c := newHurtCluster(t, binary, 1, ttl)
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		name := storm.NameAt(0)
		locktest.Unlock(t, locktest.TryLock(t, holder, name))
		r := newRivals(t, c.config, name, busy)
		master, replica := c.Masters[0], c.Replicas[0]
		pids := [2]int{master.PID(), replica.PID()}

		must(t, c.HoldReplication(locktest.Within(t, locktest.Patience), master, true))
		held := locktest.TryLock(t, holder, name, redlatch.WithoutRenewal())
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), replica))
		must(t, c.HoldReplication(locktest.Within(t, locktest.Patience), master, false))
		must(t, master.AwaitLink(locktest.Within(t, locktest.Patience)))
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), master))
		if pids != [2]int{master.PID(), replica.PID()} {
			t.Fatal("a server has restarted")
		}
		if v := locktest.Value(t, master, name); v != "" {
			t.Fatalf("the master has not lost the lock: %q", v)
		}
		return r.chase(t, held, c.d)
	})
}

// The replica stays the master.
func TestClusterTakeover(t *testing.T) {
	t.Parallel()
	eachRivals(t, fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
		c := newHurtCluster(t, binary, 1, ttl)
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		name := storm.NameAt(0)
		locktest.Unlock(t, locktest.TryLock(t, holder, name))
		r := newRivals(t, c.config, name, busy)
		must(t, c.HoldReplication(locktest.Within(t, locktest.Patience), c.Masters[0], true))
		held := locktest.TryLock(t, holder, name, redlatch.WithoutRenewal())
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
		return r.chase(t, held, c.d)
	})
}

// A replica takes the place of a master that hangs. No connection breaks by which the client would hear
// of it.
func TestClusterTakeoverFromAHungMaster(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, fixTTL)
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		name := storm.NameAt(0)
		locktest.Unlock(t, locktest.TryLock(t, client, name))
		must(t, c.Masters[0].Pause())
		t.Cleanup(func() { c.Masters[0].Resume() })
		must(t, c.TakeOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
		start := time.Now()
		lock, err := client.Lock(locktest.Within(t, 10*locktest.Patience), name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("locked %v after the takeover; the quarantine is %v", time.Since(start), c.d)
		locktest.Unlock(t, lock)
	})
}
