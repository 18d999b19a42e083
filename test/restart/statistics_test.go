package restart

import (
	"net"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A master follows its former replica, which lacks a lock, and is a master again. It forgets at once that it was
// promoted, and its statistics are reset, which would tell how much it has received. It is kept out all the same.
func TestStatisticsResetAfterAFailback(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master, replica := redistest.New(t, redistest.Options{Binary: binary}), redistest.New(t, redistest.Options{Binary: binary})
		follow := func(s, master *redistest.Server) {
			t.Helper()
			host, port, err := net.SplitHostPort(master.Addr())
			if err != nil {
				t.Fatal(err)
			}
			locktest.Do(t, s, "REPLICAOF", host, port)
			if err := s.AwaitLink(locktest.Within(t, locktest.Patience)); err != nil {
				t.Fatal(err)
			}
		}
		config := locktest.Config(master.URL())
		config.NoQuarantine = false
		config.TTL, config.MaxTTL = time.Minute, time.Minute
		client := locktest.Open(t, config)
		locktest.Await(t, "the master is vouched for", func() bool { return client.Admit(t.Context(), "n0") == nil })
		follow(replica, master) // by which the master gets another replication id
		used := locktest.TryLock(t, client, "used")
		locktest.Await(t, "the replica has the lock and the record", func() bool { return locktest.Value(t, replica, "used") != "" })
		locktest.Unlock(t, used)
		locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())

		locktest.Do(t, master, "CONFIG", "SET", "repl-backlog-ttl", "1")
		follow(master, replica)
		locktest.Do(t, master, "REPLICAOF", "NO", "ONE")
		locktest.Do(t, master, "CONFIG", "RESETSTAT")
		locktest.Await(t, "the master forgets that it was promoted", func() bool {
			info, err := master.Info("replication")
			return err == nil && info["second_repl_offset"] == "-1"
		})
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
		switch {
		case err == nil && held.Err() == nil:
			t.Errorf("%q has two holders: the first for another %v", lock.Name(), time.Until(held.Until()))
		case err == nil:
			t.Error("it was granted at once")
		default:
			t.Log(err)
		}
	})
}
