package goredis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A master is demoted, loads the data of its former replica, which lacks its last writes, and
// is promoted again while connections stay open. A client that was idle meanwhile is granted
// nothing.
func TestNoVoteRightAfterAFailback(t *testing.T) {
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
			link := func(s *redistest.Server) string {
				info, err := s.Info("replication")
				if err != nil {
					t.Fatal(err)
				}
				return info["master_link_status"]
			}
			master := redistest.New(t, redistest.Options{Binary: binary})
			stream := redistest.NewProxy(t, master.Addr())
			replica := redistest.NewReplica(t, master, redistest.Options{Binary: binary, ReplicaOf: stream.Addr()})

			c := config
			c.NoQuarantine, c.MaxTTL, c.Deployment, c.Nodes = false, c.TTL, "failback", nil
			idle, other := open(t, c, dial(t, master.Addr())), open(t, c, dial(t, master.Addr()))
			if err := idle.Admit(t.Context(), master.Addr()); err != nil {
				t.Fatal(err)
			}
			for _, client := range []*redlatch.Client{idle, other} {
				lock, err := tryLock(t, client, "warm")
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lock)
			}
			await(t, "the replica has the admission", func() bool {
				return do(replica, "EXISTS", "redlatch:{failback}:admitted") == int64(1)
			})
			stream.HoldBack(redistest.Replies, true)
			held, err := tryLock(t, other, "x", redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}

			do(replica, "REPLICAOF", "NO", "ONE")
			do(master, "REPLICAOF", "127.0.0.1", fmt.Sprint(replica.Port()))
			await(t, "the former master has its replica's data", func() bool { return link(master) == "up" })
			do(master, "REPLICAOF", "NO", "ONE")
			if v := do(master, "EXISTS", "x"); v != int64(0) {
				t.Fatal("the master has not lost the lock")
			}
			if lock, err := tryLock(t, idle, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Fatalf("lock %v, error %v, while the first holder's is %v: want ErrNotAdmitted", lock, err, held.Err())
			}
			if err := held.Extend(t.Context(), 10*time.Second); err == nil {
				t.Error("a lock was extended that the node had lost")
			}
		})
	}
}
