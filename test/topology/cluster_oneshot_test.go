package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
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
