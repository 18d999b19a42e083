package topology

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// An extension does not ask a Cluster's master what it knows of all masters and slots, which takes longer than the rest of it.
func TestClusterExtensionIsCheap(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		const count = 60
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.Config(clusterURL(servers)))
		var locks []*redlatch.Lock
		for _, name := range storm.NamesAt(0, count) { // in different slots
			lock, err := client.Lock(locktest.Within(t, locktest.Patience), name, redlatch.WithoutRenewal())
			must(t, err)
			locks = append(locks, lock)
		}
		time.Sleep(1100 * time.Millisecond) // the time in an admission key is stored again after a second
		before := nodesAsked(t, servers[0])
		for _, lock := range locks {
			must(t, lock.Extend(t.Context(), locktest.TTL))
		}
		if asked := nodesAsked(t, servers[0]) - before; asked > count/2 {
			t.Errorf("%d extensions asked for the nodes %d times", count, asked)
		}
	})
}

// nodesAsked is how often CLUSTER NODES was asked of the server.
func nodesAsked(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info("commandstats")
	must(t, err)
	calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_cluster|nodes"], "calls="), ",")
	n, _ := strconv.Atoi(calls) // 0 where it never was
	return n
}
