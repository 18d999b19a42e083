package topology

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
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
			held = locktest.TryLock(t, other, name, redlatch.WithoutRenewal())
			locktest.Do(t, at, "FLUSHALL")
			locktest.Do(t, at, "CONFIG", "RESETSTAT")
		})
		late := locktest.OpenIn(t, c.config, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
			options, _, err := redisconn.Parse(c.config.Nodes[0])
			options.ConnectTimeout = locktest.Patience
			return stalling{redisconn.NewCluster(options), "", new(atomic.Int32), amid}, err
		}})
		lock, err := locktest.AwaitAnswer(t, late, name)
		switch {
		case held == nil:
			t.Errorf("nothing happened amid the admission: %v", err)
		case err == nil && held.Err() == nil:
			t.Errorf("%q has two holders: the first for another %v", lock.Name(), time.Until(held.Until()))
		case err == nil:
			t.Error("it was granted too early")
		}
	})
}
