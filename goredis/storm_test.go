package goredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// Never two holders and never a token backward over go-redis either, whatever befalls the
// Cluster's masters. It does not run beside other tests, whom it would take the processor
// from.
func TestClusterStorm(t *testing.T) {
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			storm.Run(t, binary, func(t *testing.T, c redlatch.Config, masters []*redistest.Server) *redlatch.Client {
				t.Helper()
				options := &redis.ClusterOptions{
					// A master that hangs keeps a connection for each command until ReadTimeout.
					PoolSize: 100,
					// Longer than NodeTimeout, so that commands on a lock keep their order while a
					// master hangs for a moment, and shorter than the longest that one does.
					ReadTimeout: time.Second, PoolTimeout: time.Second, DialTimeout: time.Second,
					// A master that has died says to nobody who has its slots now.
					ClusterStateReloadInterval: time.Second,
				}
				for _, m := range masters {
					options.Addrs = append(options.Addrs, m.Addr())
				}
				rdb := redis.NewClusterClient(options)
				t.Cleanup(func() { rdb.Close() })
				c.Nodes = []string{storm.Node}
				return open(t, c, rdb)
			})
		})
	}
}
