package restart

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
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
		config := locktest.Config(master.URL())
		config.NoQuarantine = false
		config.TTL, config.MaxTTL = time.Minute, time.Minute
		client := locktest.Open(t, config)
		locktest.Await(t, "the master is vouched for", func() bool { return client.Admit(t.Context(), "n0") == nil })
		follow(t, replica, master) // by which the master gets another replication id
		used := locktest.TryLock(t, client, "used")
		locktest.Await(t, "the replica has the lock and the record", func() bool { return locktest.Value(t, replica, "used") != "" })
		locktest.Unlock(t, used)
		locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())

		locktest.Do(t, master, "CONFIG", "SET", "repl-backlog-ttl", "1")
		follow(t, master, replica)
		locktest.Do(t, master, "REPLICAOF", "NO", "ONE")
		locktest.Do(t, master, "CONFIG", "RESETSTAT")
		awaitForgotten(t, master)
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// A replica that lacks a lock takes its master's place. It has been up for long, forgets at once that it was promoted, and
// its statistics are reset, which would tell how much it has received. It is kept out all the same.
func TestStatisticsResetAfterAPromotion(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master := redistest.New(t, redistest.Options{Binary: binary})
		replica := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--repl-backlog-ttl", "1"}})
		const ttl = 8 * time.Second
		config := locktest.WithMaxTTL(locktest.WithQuarantine(master.URL()), ttl)
		client := locktest.Open(t, config)
		locktest.Vouch(t, client, "n0")
		follow(t, replica, master)
		used := locktest.TryLock(t, client, "used")
		locktest.Await(t, "the replica has the lock and the record", func() bool { return locktest.Value(t, replica, "used") != "" })
		locktest.Unlock(t, used)
		awaitUptime(t, replica, ttl+4*time.Second)
		locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		master.Kill()
		locktest.Do(t, replica, "CONFIG", "RESETSTAT")
		awaitForgotten(t, replica)
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, locktest.Through(config, replica.URL())), "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// A replica takes its master's place, and that one is told to follow it but cannot reach it. Then it is to be the master
// again, and forgets at once that it was promoted. It has received nothing, and lacks what the other one granted.
func TestFailbackOfAReplicaThatReceivedNothing(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--repl-backlog-ttl", "1"}})
		replica := redistest.New(t, redistest.Options{Binary: binary})
		config := locktest.WithMaxTTL(locktest.WithQuarantine(master.URL()), time.Minute)
		follow(t, replica, master) // by which the master gets another replication id
		client := locktest.Open(t, config)
		locktest.Vouch(t, client, "n0")
		locktest.Unlock(t, locktest.TryLock(t, client, "used"))

		locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
		locktest.Do(t, master, "REPLICAOF", "127.0.0.1", "1") // where nobody is
		client = locktest.Open(t, locktest.Through(config, replica.URL()))
		locktest.Vouch(t, client, "n0")
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		replica.Kill()
		locktest.Do(t, master, "REPLICAOF", "NO", "ONE")
		awaitForgotten(t, master)
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// The same, where FAILOVER makes the master a replica and, given up, a master again.
func TestFailoverThatIsGivenUp(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--repl-backlog-ttl", "1"}})
		replica := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--replica-announce-ip", "127.0.0.1", "--replica-announce-port", "1"}})
		config := locktest.WithMaxTTL(locktest.WithQuarantine(master.URL()), time.Minute)
		follow(t, replica, master) // by which the master gets another replication id
		client := locktest.Open(t, config)
		locktest.Vouch(t, client, "n0")
		locktest.Unlock(t, locktest.TryLock(t, client, "used"))

		locktest.Await(t, "the replica is online", func() bool {
			info, err := master.Info("replication")
			return err == nil && strings.Contains(info["slave0"], "state=online")
		})
		locktest.Do(t, master, "FAILOVER", "TO", "127.0.0.1", "1", "FORCE", "TIMEOUT", "1")
		locktest.Await(t, "the master is a replica", func() bool {
			info, err := master.Info("replication")
			return err == nil && info["role"] == "slave"
		})
		locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
		client = locktest.Open(t, locktest.Through(config, replica.URL()))
		locktest.Vouch(t, client, "n0")
		held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		replica.Kill()
		locktest.Do(t, master, "FAILOVER", "ABORT")
		awaitForgotten(t, master)
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// A server that has been up for long loses its keys and its scripts, and its statistics are reset, which would tell. It is
// not taken for one that was never used.
func TestStatisticsResetAfterAFlush(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := redistest.New(t, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.WithQuarantine(s.URL()))
		locktest.Vouch(t, client, "n0")
		awaitUptime(t, s, locktest.RestartQuarantine)
		for _, command := range [][]string{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"CONFIG", "RESETSTAT"}} {
			locktest.Do(t, s, command...)
		}
		if _, err := locktest.TryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Errorf("%v, want ErrNotAdmitted", err)
		}
	})
}

// Between the look at a server that was never used and its admission, another client admits it and has a lock, all keys are
// deleted, and the statistics are reset, which would tell. The late admission does not count.
func TestStatisticsResetAmidAnAdmission(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		const ttl = 8 * time.Second
		config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), ttl)
		other := locktest.Open(t, config)
		var held *redlatch.Lock
		amid := sync.OnceFunc(func() {
			held = locktest.TryLock(t, other, "x", redlatch.WithoutRenewal())
			locktest.Do(t, server, "FLUSHALL")
			locktest.Do(t, server, "CONFIG", "RESETSTAT")
		})
		client := openAmid(t, config, admits, amid)
		awaitUptime(t, server, ttl+4*time.Second)
		lock, err := locktest.AwaitAnswer(t, client, "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// awaitUptime waits until a server has been up for longer than a quarantine.
func awaitUptime(t *testing.T, s *redistest.Server, quarantine time.Duration) {
	t.Helper()
	locktest.Await(t, "the server has been up for long", func() bool {
		info, err := s.Info("server")
		if err != nil {
			t.Fatal(err)
		}
		up, err := strconv.Atoi(info["uptime_in_seconds"])
		return err == nil && time.Duration(up)*time.Second > quarantine+time.Second
	})
}

// awaitForgotten waits until a server whose repl-backlog-ttl is short has forgotten that it was promoted.
func awaitForgotten(t *testing.T, s *redistest.Server) {
	t.Helper()
	locktest.Await(t, "the server forgets that it was promoted", func() bool {
		info, err := s.Info("replication")
		return err == nil && info["second_repl_offset"] == "-1"
	})
}

// follow makes a server follow another one, and waits until it has that one's data.
func follow(t *testing.T, s, master *redistest.Server) {
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
