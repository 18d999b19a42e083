package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// queued returns who waits for the key, by the names in the queue that the server keeps.
func queued(s *redistest.Server, key string) (waiters []string) {
	reply, err := s.Do("ZRANGE", "redlatch:{"+hashslot.Tag(key)+"}:queue:"+key, "0", "-1")
	if err != nil {
		return nil // the slot is elsewhere
	}
	for _, waiter := range reply.([]any) {
		waiters = append(waiters, waiter.(string))
	}
	return waiters
}

// channelOf is where a waiter with this name in the queue listens, "" where it does not.
func channelOf(waiter string) string {
	client, _, _ := strings.Cut(strings.TrimPrefix(waiter, "-+"), "/")
	if !strings.HasPrefix(client, "{") {
		return ""
	}
	return "redlatch:wake:" + client
}

// listeners is how many listen on the channel at the server.
func listeners(s *redistest.Server, channel string) int64 {
	reply, err := s.Do("PUBSUB", "SHARDNUMSUB", channel)
	if err != nil {
		return 0
	}
	return reply.([]any)[1].(int64)
}

// awaitListening waits until one client waits for the key at the server, which can tell it of a
// release there. It returns the channel.
func awaitListening(t *testing.T, s *redistest.Server, key string) (channel string) {
	t.Helper()
	locktest.Await(t, "the waiter listens at the server that has the slot", func() bool {
		waiters := queued(s, key)
		if len(waiters) != 1 {
			return false
		}
		channel = channelOf(waiters[0])
		return channel != "" && listeners(s, channel) == 1
	})
	return channel
}

// A release in a Cluster wakes up the first in the queue, who then has looked once: who is not told of
// it looks more often.
func TestClusterWakesUp(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		conf := locktest.Config(clusterURL(servers))
		holder, told, deaf := locktest.Open(t, conf), locktest.Open(t, conf), locktest.Open(t, withoutWakeUps(t, conf, servers))
		for what, options := range map[string][]redlatch.Option{"writer": nil, "reader": {redlatch.WithShared()}, "permit": {redlatch.WithPermits(1)}} {
			key := "{" + storm.NameAt(1) + "}" + what
			for round := 0; ; round++ { // a busy machine looks again after a heartbeat, but not always
				calls, looks := handedOver(t, servers, holder, told, key, options), handedOver(t, servers, holder, deaf, key, options)
				t.Logf("%s: %d scripts for %d hand-offs, %d without wake-ups", what, calls, clusterHandOffs, looks)
				if calls+clusterHandOffs/2 < looks {
					break
				}
				if round == 5 {
					t.Fatalf("%s: who listens looks as often as who does not", what)
				}
			}
		}
	})
}

// withoutWakeUps is conf for a user who may not listen.
func withoutWakeUps(t *testing.T, conf redlatch.Config, servers []*redistest.Server) redlatch.Config {
	t.Helper()
	for _, s := range servers {
		locktest.Do(t, s, "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe")
	}
	conf.Nodes = []string{strings.Replace(conf.Nodes[0], "://", "://deaf:secret@", 1)}
	return conf
}

const clusterHandOffs = 10

// handedOver has a lock at the second master go from a holder who is alone to a waiter with these
// options, and returns how many scripts that took there.
func handedOver(t *testing.T, servers []*redistest.Server, holder, waiter *redlatch.Client, key string, options []redlatch.Option) int {
	t.Helper()
	queue, alone := key, options
	switch {
	case strings.HasSuffix(key, "permit"):
		queue = "redlatch:{" + hashslot.Tag(key) + "}:permit::" + key
	case strings.HasSuffix(key, "reader"):
		alone = nil // or they would read together
	}
	calls := 0
	for range clusterHandOffs {
		lock, err := holder.Lock(locktest.Within(t, locktest.Patience), key, alone...)
		if err != nil {
			t.Fatal(err)
		}
		before := locktest.ScriptCalls(t, servers)[1]
		next := locktest.LockIn(locktest.Within(t, locktest.Patience), waiter, key, options...)
		locktest.Await(t, "the client waits", func() bool { return len(queued(servers[1], queue)) == 1 })
		locktest.Unlock(t, lock)
		o := <-next
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		calls += locktest.ScriptCalls(t, servers)[1] - before
		locktest.Unlock(t, o.Lock)
	}
	return calls
}

// The slot moves while somebody waits in it, to another master or to a replica that is promoted while
// the former master hangs and so says nothing: the waiter listens where the slot is.
func TestClusterWakesUpWhereTheSlotIs(t *testing.T) {
	t.Parallel()
	for what, move := range map[string]func(t *testing.T, c *hurtCluster) *redistest.Server{
		"moved": func(t *testing.T, c *hurtCluster) *redistest.Server {
			must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(storm.NameAt(0)), c.Masters[1], func(string) {}))
			return c.Masters[1]
		},
		"failed over": func(t *testing.T, c *hurtCluster) *redistest.Server {
			must(t, c.FailOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
			return c.Replicas[0]
		},
		"hung": func(t *testing.T, c *hurtCluster) *redistest.Server {
			must(t, c.Masters[0].Pause())
			t.Cleanup(func() { c.Masters[0].Resume() })
			must(t, c.TakeOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
			return c.Replicas[0]
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := newHurtCluster(t, binary, 1, fixTTL)
				holder, waiter := locktest.Open(t, c.config), locktest.Open(t, c.config)
				c.admit(t, holder)
				name := storm.NameAt(0)
				lock, err := locktest.AwaitAnswer(t, holder, name)
				if err != nil {
					t.Fatal(err)
				}
				ctx := locktest.Within(t, c.d+2*locktest.Patience)
				next := locktest.LockIn(ctx, waiter, name)
				channel := awaitListening(t, c.Masters[0], name)
				to := move(t, c)
				start := time.Now()
				// A master that was promoted votes for nobody for a while.
				first, err := holder.Lock(ctx, "{"+name+"}beside")
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("the server votes after %v", time.Since(start))
				locktest.Unlock(t, first)
				lock.Unlock(ctx) // it may be lost
				o := <-next
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				locktest.Unlock(t, o.Lock)
				if lock, err = holder.Lock(ctx, name); err != nil {
					t.Fatal(err)
				}
				next = locktest.LockIn(ctx, waiter, name)
				if again := awaitListening(t, to, name); again != channel {
					t.Errorf("the waiter listens on %q, before on %q", again, channel)
				}
				locktest.Unlock(t, lock)
				if o = <-next; o.Err != nil {
					t.Fatal(o.Err)
				}
				locktest.Unlock(t, o.Lock)
			})
		})
	}
}

// Where the user may not listen to sharded channels, who waits looks. Who was left out of the queue, as by a
// client that publishes otherwise, looks when its heartbeat is due, and has its place again.
func TestClusterWaitsWithoutWakeUps(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		conf := locktest.Config(clusterURL(servers))
		holder, name := locktest.Open(t, conf), storm.NameAt(1)
		lock, err := locktest.AwaitAnswer(t, holder, name)
		if err != nil {
			t.Fatal(err)
		}
		next := locktest.LockIn(locktest.Within(t, locktest.Patience), locktest.Open(t, withoutWakeUps(t, conf, servers)), name)
		locktest.Await(t, "it waits", func() bool { return len(queued(servers[1], name)) == 1 })
		if waiter := queued(servers[1], name)[0]; channelOf(waiter) != "" {
			t.Errorf("%q listens", waiter)
		}
		locktest.Unlock(t, lock)
		o := <-next
		if o.Err != nil {
			t.Fatal(o.Err)
		}

		next = locktest.LockIn(locktest.Within(t, locktest.Patience), holder, name)
		awaitListening(t, servers[1], name)
		locktest.Do(t, servers[1], "DEL", "redlatch:{"+name+"}:queue:"+name, "redlatch:{"+name+"}:next:"+name)
		locktest.Unlock(t, o.Lock)
		if o = <-next; o.Err != nil {
			t.Fatal(o.Err)
		}
		locktest.Unlock(t, o.Lock)
	})
}
