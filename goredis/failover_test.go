package goredis_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redistest"
)

// An address, such as a name in DNS, that leads to the promoted replica by now is connected to anew, though the pool's
// connections to its former master stand.
func TestAddressLeadsToTheNewMaster(t *testing.T) {
	t.Parallel()
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			do := func(s *redistest.Server, args ...string) any {
				t.Helper()
				reply, err := s.Do(args...)
				if err != nil {
					t.Fatalf("%v: %v", args, err)
				}
				return reply
			}
			master := redistest.New(t, redistest.Options{Binary: binary})
			replica := redistest.NewReplica(t, master, redistest.Options{Binary: binary, ReplicaOf: master.Addr()})
			address := redistest.NewProxy(t, master.Addr())
			rdb := dial(t, address.Addr())
			client := open(t, config, rdb)
			lock, err := tryLock(t, client, "x")
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, lock)
			pooled := make([]*redis.Conn, 8)
			for i := range pooled {
				pooled[i] = rdb.Conn()
				if err := pooled[i].Ping(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for _, conn := range pooled {
				conn.Close() // and goes back to the pool
			}
			do(replica, "REPLICAOF", "NO", "ONE")
			do(master, "REPLICAOF", "127.0.0.1", fmt.Sprint(replica.Port()))
			address.Retarget(replica.Addr())
			last := ""
			await(t, "a lock at the new master", func() bool {
				lock, err := client.TryLock(t.Context(), "x")
				if err != nil {
					if err.Error() != last {
						last = err.Error()
						t.Log(last)
					}
					return false
				}
				unlock(t, lock)
				return true
			})
		})
	}
}
