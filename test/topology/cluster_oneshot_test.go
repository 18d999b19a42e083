package topology

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
	"github.com/redlatch/redlatch/oneshot"
)

// A user who may run no script takes keys at each master of a Cluster that has replicas.
func TestClusterOneShotWithoutScripts(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, fixTTL)
		servers := append(c.Masters[:len(c.Masters):len(c.Masters)], c.Replicas...)
		for _, s := range servers {
			locktest.Do(t, s, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-@scripting")
		}
		for round := range 10 {
			config := locktest.Config(c.Masters[0].URLAs("u", "p") + "?cluster")
			client := oneshot.New(locktest.Open(t, config))
			for i := range c.Masters {
				name := fmt.Sprintf("{%s}%d", storm.NameAt(i), round)
				if taken, err := client.Take(t.Context(), name, "x", 20*time.Second); err != nil || !taken {
					t.Errorf("at master %d: %t, %v", i, taken, err)
				}
			}
		}
	})
}

// There are no transactions in a Cluster. Nothing is taken there that they would have to release.
func TestClusterOneShotByTransactions(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		config := locktest.Config(clusterURL(redistest.NewCluster(t, 3, redistest.Options{Binary: binary})))
		shots := oneshots(t, config, oneshot.CommandsWatch)
		locktest.Await(t, "it is refused", func() bool { // on a busy machine the Cluster may be late
			taken, err := shots.Take(t.Context(), "x", "me", 20*time.Second)
			if taken {
				released, err := shots.Release(t.Context(), "x", "me")
				t.Fatalf("it is taken; released: %t, %v", released, err)
			}
			return errors.Is(err, redlatch.ErrRefused)
		})
	})
}
