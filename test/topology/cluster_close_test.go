package topology

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// Close stays for a master that hangs as long as for a server: a few times NodeTimeout.
func TestClusterCloseBesideAHungMaster(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		conf := locktest.Config(clusterURL(servers))
		conf.NodeTimeout = 100 * time.Millisecond
		const tries, most = 20, 900 * time.Millisecond
		var took time.Duration
		for range tries {
			client := locktest.Open(t, conf)
			if _, err := locktest.AwaitAnswer(t, client, storm.NameAt(0)); err != nil {
				t.Fatal(err)
			}
			must(t, servers[0].Pause())
			start := time.Now()
			if err := client.Close(); err == nil {
				t.Error("the lock was released by a master that hangs")
			}
			took = time.Since(start)
			must(t, servers[0].Resume())
			if took < most {
				return
			}
			locktest.Do(t, servers[0], "DEL", storm.NameAt(0))
		}
		t.Errorf("%d times, Close took longer than %v; at last %v", tries, most, took)
	})
}
