package topology

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/storm"
)

// Between the look at a slot that was never used and its admission, another client locks there, all keys of the master
// are deleted, and its statistics, which would tell, are reset. They had been reset before, so that they are what they were.
func TestClusterStatisticsResetAmidAnAdmission(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, 2*fixTTL)
		other := locktest.Open(t, c.config)
		c.admit(t, other)
		name, at := storm.NameAt(0), c.Masters[0]
		locktest.Do(t, at, "CONFIG", "RESETSTAT")
		var held *redlatch.Lock
		amid := sync.OnceFunc(func() {
			held = lockMeanwhile(t, other, name)
			locktest.Do(t, at, "FLUSHALL")
			locktest.Do(t, at, "CONFIG", "RESETSTAT")
		})
		lock, err := locktest.AwaitAnswer(t, openStalling(t, c.config, hashslot.TagOf(hashslot.Of(name)), false, amid), name)
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// lockMeanwhile acquires a lock in a goroutine of a client, which must not be ended. On a busy machine the first try may be too early.
func lockMeanwhile(t *testing.T, other *redlatch.Client, name string) *redlatch.Lock {
	t.Helper()
	lock, err := other.Lock(locktest.Within(t, locktest.Patience), name, redlatch.WithoutRenewal())
	if err != nil {
		t.Error(err)
	}
	return lock
}

// registering is a Cluster's connection on which something happens before a master's slots are recorded, late.
type registering struct {
	*redisconn.Cluster
	happen func()
	done   chan<- driver.Reply
}

func (c registering) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if len(args) < 2 || args[1] != script.Shard.Text {
		return c.Cluster.Do(ctx, args...)
	}
	c.happen()
	reply, err := c.Cluster.Do(context.WithoutCancel(ctx), args...)
	select {
	case c.done <- reply:
	default:
	}
	return reply, err
}

// The same between the look at a master that was never used and the record of its slots, which comes when a quarantine
// has passed since the look. The slots are known from the record on, not from the look on.
func TestClusterStatisticsResetAmidARecord(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, 2*fixTTL)
		other := locktest.Open(t, c.config)
		name, at := storm.NameAt(0), c.Masters[0]
		locktest.Do(t, at, "CONFIG", "RESETSTAT")
		var held *redlatch.Lock
		amid := sync.OnceFunc(func() {
			looked := locktest.ServerTime(t, at)
			c.admit(t, other)
			locktest.Await(t, "a quarantine has passed", func() bool { return locktest.ServerTime(t, at).Sub(looked) > c.d+2*time.Second })
			held = lockMeanwhile(t, other, name)
			locktest.Do(t, at, "FLUSHALL")
			locktest.Do(t, at, "CONFIG", "RESETSTAT")
		})
		done := make(chan driver.Reply, 1)
		late := locktest.OpenIn(t, c.config, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
			options, _, err := redisconn.Parse(c.config.Nodes[0])
			options.ConnectTimeout = locktest.Patience
			return registering{redisconn.NewCluster(options), amid, done}, err
		}})
		locktest.LockIn(t.Context(), late, "{"+name+"}late") // in the same slot: when other is admitted, late may be first
		if reply := <-done; reply.Int != 1 {
			t.Errorf("the record: %v", reply)
		}
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, c.config), name)
		if held != nil {
			locktest.IsKeptOut(t, held, lock, err)
		}
	})
}
