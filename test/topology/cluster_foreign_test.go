package topology

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// leastHeartbeat is the shortest time between two looks of one who relies on being told.
const leastHeartbeat = 1400 * time.Millisecond

// watching is how often a server was asked to tell of the keys that the next command reads.
func watching(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_client|caching"], "calls="), ",")
	n, _ := strconv.Atoi(calls)
	return n
}

// awaitWatching waits until the server was asked more often than before, and returns when it was not yet.
func awaitWatching(t *testing.T, s *redistest.Server, before int) (since time.Time) {
	t.Helper()
	locktest.Await(t, "the server is asked to tell of the key", func() bool {
		now := time.Now()
		if watching(t, s) > before {
			return true
		}
		since = now
		return false
	})
	return since
}

// inTime has f return how long after a look it took to hear of a change, until that is less than from one
// look to the next: a busy machine may be late, but not always.
func inTime(t *testing.T, f func(round int) time.Duration) {
	t.Helper()
	for round := 0; ; round++ {
		took := f(round)
		t.Logf("%v after a look", took.Round(time.Millisecond))
		if took < leastHeartbeat {
			return
		}
		if round == 20 {
			t.Fatal("a change is seen when it is looked for")
		}
	}
}

// whenCut has the server break all connections and run the command before any is made again.
func whenCut(t *testing.T, s *redistest.Server, command ...string) {
	t.Helper()
	conn, err := s.Dial(t.Context())
	must(t, err)
	defer conn.Close()
	for _, command := range [][]string{{"MULTI"}, {"CLIENT", "KILL", "TYPE", "normal"}, command, {"EXEC"}} {
		if _, err := conn.Do(command...); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
}

// A client of another library, which wakes nobody up, holds the lock. The first in the queue is told when that
// one lets go of it, wherever the slot is by then, and looks when nobody can tell it any more.
func TestClusterTellsOfAForeignHolder(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, fixTTL)
		waiter := locktest.Open(t, c.config)
		c.admit(t, waiter)
		for what, end := range map[string]func(t *testing.T, at *redistest.Server, name string) (since time.Time){
			"deletes": func(t *testing.T, at *redistest.Server, name string) (since time.Time) {
				locktest.Do(t, at, "DEL", name)
				return since
			},
			"expires": func(t *testing.T, at *redistest.Server, name string) (since time.Time) {
				locktest.Do(t, at, "PEXPIRE", name, "50")
				return since
			},
			"moves": func(t *testing.T, at *redistest.Server, name string) (since time.Time) {
				to := c.Masters[(slices.Index(c.Masters, at)+1)%len(c.Masters)]
				before := watching(t, to)
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
				since = awaitWatching(t, to, before)
				locktest.Do(t, to, "DEL", name)
				return since
			},
			// The connection by which it would be told has gone by then.
			"breaks": func(t *testing.T, at *redistest.Server, name string) (since time.Time) {
				whenCut(t, at, "DEL", name)
				return since
			},
		} {
			t.Run(what, func(t *testing.T) {
				inTime(t, func(round int) time.Duration {
					name := storm.NamesAt(0, 21)[round]
					at, err := c.Owner(storm.SlotOf(name))
					must(t, err)
					ctx := locktest.Within(t, locktest.Patience)
					locktest.Unlock(t, locktest.TryLock(t, waiter, "{"+name+"}used"))
					locktest.Do(t, at, "SET", name, "theirs", "PX", "60000")
					before := watching(t, at)
					out := locktest.LockIn(ctx, waiter, name)
					since := awaitWatching(t, at, before)
					if later := end(t, at, name); !later.IsZero() {
						since = later
					}
					o := <-out
					took := time.Since(since)
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					locktest.Unlock(t, o.Lock)
					return took
				})
			})
		}
	})
}

// While another library's lock is waited for, nothing is asked but what keeps the place. Without the right to
// be told, who waits looks again and again.
func TestClusterForeignHolderIsQuiet(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3)
	conf := locktest.Config(clusterURL(servers))
	for _, s := range servers {
		locktest.Do(t, s, "ACL", "SETUSER", "untold", "on", ">secret", "~*", "&*", "+@all", "-client|tracking", "-client|caching")
	}
	untold := conf
	untold.Nodes = []string{strings.Replace(conf.Nodes[0], "://", "://untold:secret@", 1)}
	at, calls := servers[1], func() int { return locktest.ScriptCalls(t, servers)[1] }
	for who, conf := range map[string]redlatch.Config{"told": conf, "untold": untold} {
		t.Run(who, func(t *testing.T) {
			name := storm.NameAt(1)
			locktest.Do(t, at, "SET", name, "theirs", "PX", "60000")
			before := watching(t, at)
			out := locktest.LockIn(locktest.Within(t, 10*locktest.Patience), locktest.Open(t, conf), name)
			if who == "told" {
				awaitWatching(t, at, before)
				for round := 0; ; round++ { // a busy machine may send what was due before late, but not always
					before, start := calls(), time.Now()
					<-time.After(2 * time.Second)
					asked, passed := calls()-before, time.Since(start)
					if asked <= int(passed/leastHeartbeat)+1 {
						break
					}
					if round == 8 {
						t.Fatalf("asked %d times in %v", asked, passed)
					}
				}
			} else {
				locktest.Await(t, "it waits", func() bool { return len(queued(at, name)) == 1 })
				const looks = 10
				for round := 0; ; round++ { // a busy machine may look late, but not always
					locktest.Do(t, at, "PEXPIRE", name, "60000")
					before := calls()
					took := locktest.Await(t, "it looks", func() bool { return calls()-before >= looks })
					if took <= looks*leastHeartbeat {
						break
					}
					if round == 8 {
						t.Fatalf("it looked %d times in %v", looks, took)
					}
				}
			}
			locktest.Do(t, at, "DEL", name)
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			locktest.Unlock(t, o.Lock)
		})
	}
}

// Who observes a lock in a Cluster is told of each change, also of another library's, and looks when the
// connection has broken by which it would be told.
func TestClusterTellsObservers(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		conf := locktest.Config(clusterURL(servers))
		client, other := locktest.Open(t, conf), locktest.Open(t, conf)
		name, at := storm.NameAt(2), servers[2]
		ctx, cancel := context.WithCancel(t.Context())
		holders, permits := make(chan redlatch.Holder, 100), make(chan []redlatch.Permit, 100)
		var observers sync.WaitGroup
		defer func() { cancel(); observers.Wait() }()
		observers.Go(func() { observe(client.Observe(ctx, name), holders) })
		observers.Go(func() { observe(client.ObservePermits(ctx, name), permits) })
		<-holders // nobody
		inTime(t, func(round int) time.Duration {
			since := time.Now()
			locktest.Do(t, at, "SET", name, fmt.Sprint("theirs ", round))
			<-holders
			locktest.Do(t, at, "DEL", name)
			<-holders
			return time.Since(since)
		})
		inTime(t, func(round int) time.Duration {
			locktest.Do(t, at, "SET", name, fmt.Sprint("theirs again ", round))
			since := time.Now()
			<-holders
			whenCut(t, at, "DEL", name)
			<-holders
			return time.Since(since)
		})
		<-permits // none
		inTime(t, func(int) time.Duration {
			since := time.Now()
			permit := locktest.TryLock(t, other, name, redlatch.WithPermits(2))
			<-permits
			locktest.Unlock(t, permit)
			<-permits
			return time.Since(since)
		})
	})
}

// observe sends what is yielded.
func observe[T any](seq iter.Seq2[T, error], to chan<- T) {
	for v, err := range seq {
		if err == nil {
			to <- v
		}
	}
}
