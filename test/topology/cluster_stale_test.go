package topology

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A client that was idle knows a master that has been replaced since, or has restarted, while
// another master hangs. It finds out whom to ask, and locks as soon as a client that comes.
func TestClusterIdleClientWhileAnotherMasterHangs(t *testing.T) {
	t.Parallel()
	for what, happen := range map[string]func(t *testing.T, c *hurtCluster){
		"replaced": func(t *testing.T, c *hurtCluster) {
			must(t, c.TakeOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
		},
		"restarted": func(t *testing.T, c *hurtCluster) {
			c.Masters[0].Kill()
			must(t, c.RestartEmpty(locktest.Within(t, locktest.Patience), c.Masters[0]))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				replicas := map[string]int{"replaced": 1, "restarted": 0}[what]
				c := newHurtCluster(t, binary, replicas, locktest.RestartTTL)
				c.config.NodeTimeout = 500 * time.Millisecond
				idle := locktest.Open(t, c.config)
				c.admit(t, idle)
				for i := range 3 {
					locktest.Unlock(t, locktest.TryLock(t, idle, storm.NameAt(i)))
				}
				happen(t, c)
				must(t, c.AwaitServing(locktest.Within(t, locktest.Patience)))
				fresh := locktest.Open(t, c.config)
				fresh.TryLock(t.Context(), storm.NameAt(0)) // the wait begins
				must(t, c.Masters[1].Pause())
				t.Cleanup(func() { c.Masters[1].Resume() })
				lock, err := fresh.Lock(locktest.Within(t, c.d+locktest.Patience), storm.NameAt(0))
				if err != nil {
					t.Fatal(err)
				}
				locktest.Unlock(t, lock)
				if lock, err = idle.Lock(locktest.Within(t, locktest.Patience), storm.NameAt(0)); err != nil {
					t.Fatalf("the client that was idle: %v", err)
				}
				locktest.Unlock(t, lock)
			})
		})
	}
}
