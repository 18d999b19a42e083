package goredis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redistest"
)

// An address that leads to the promoted replica by now is connected to anew, though the former master has not broken the
// pool's connections, when these have reached their lifetime.
func TestAddressLeadsToTheNewMaster(t *testing.T) {
	t.Parallel()
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			do := func(s *redistest.Server, args ...string) {
				t.Helper()
				if _, err := s.Do(args...); err != nil {
					t.Fatalf("%v: %v", args, err)
				}
			}
			master := redistest.New(t, redistest.Options{Binary: binary})
			replica := redistest.NewReplica(t, master, redistest.Options{Binary: binary, ReplicaOf: master.Addr()})
			address := redistest.NewProxy(t, master.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: address.Addr(), ConnMaxLifetime: time.Second})
			t.Cleanup(func() { rdb.Close() })
			client := open(t, config, rdb)
			locked := func() bool {
				lock, err := tryLock(t, client, "x")
				if err != nil {
					return false
				}
				unlock(t, lock)
				return true
			}
			await(t, "a lock", locked)
			do(replica, "REPLICAOF", "NO", "ONE")
			do(master, "REPLICAOF", "127.0.0.1", fmt.Sprint(replica.Port()))
			address.Retarget(replica.Addr())
			await(t, "a lock at the new master", locked)
		})
	}
}
