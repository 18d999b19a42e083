package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// List finds locks among more keys than a node looks at in one step, without KEYS, and
// says who waits by the labels that they have.
func TestList(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes, err := redistest.StartNodes(t.Context(), 3, redistest.Options{Binary: binary})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range nodes {
			t.Cleanup(func() { s.Close() })
			locktest.Do(t, s, "ACL", "SETUSER", "default", "-keys")
			locktest.Do(t, s, "EVAL", "for i = 1, 2000 do redis.call('SET', 'data:' .. i, 'x') redis.call('RPUSH', 'list:' .. i, 'x') end", "0")
		}
		// So that a busy machine need not renew any while it lists them.
		c := locktest.WithMaxTTL(locktest.Config(redistest.URLs(nodes)...), 10*time.Minute)
		holder := locktest.Open(t, c)
		const locks = 700
		for i := range locks {
			locktest.TryLock(t, holder, fmt.Sprint("lock:", i))
		}
		locktest.Do(t, nodes[0], "SET", "foreign", "a token", "PX", "600000")
		awkward := c
		awkward.Label = "a b/c:%41 é"
		report, waits := locktest.WhenWaiting(nil)
		ctx, cancel := context.WithCancel(t.Context())
		out := locktest.LockIn(ctx, locktest.Open(t, awkward), "lock:7", report)
		<-waits
		locktest.Await(t, "the waiter is queued", func() bool {
			line, err := redlatch.Waiters(t.Context(), c, "lock:7")
			return err == nil && len(line) == 1 && line[0].Label == awkward.Label
		})
		var listed []redlatch.Listed
		// On a busy machine the waiter may be late to say that it still waits.
		locktest.Await(t, "all nodes list their locks, none of which takes a second for a step, and the waiter", func() bool {
			var answers []redlatch.NodeAnswer
			var err error
			listed, answers, err = redlatch.List(t.Context(), c, "*")
			if len(answers) != 3 {
				t.Fatalf("%v, %v", err, answers)
			}
			queued := slices.ContainsFunc(listed, func(l redlatch.Listed) bool { return l.Name == "lock:7" && len(l.Waiting) == 1 })
			return err == nil && queued && !slices.ContainsFunc(answers, func(a redlatch.NodeAnswer) bool { return a.Err != nil })
		})
		seen := make(map[string]redlatch.Listed)
		for _, lock := range listed {
			if _, twice := seen[lock.Name]; twice {
				t.Errorf("%s is there twice", lock.Name)
			}
			seen[lock.Name] = lock
		}
		if len(seen) != locks+1 || !seen["foreign"].Foreign || seen["foreign"].Nodes != 1 {
			t.Errorf("%d locks, foreign is %+v", len(seen), seen["foreign"])
		}
		if lock := seen["lock:7"]; lock.Nodes < 2 || lock.Foreign || lock.Left <= 0 || len(lock.Waiting) != 1 || lock.Waiting[0].Label != awkward.Label {
			t.Errorf("%+v", lock)
		}
		locktest.Await(t, "a client says the same", func() bool {
			again, _, err := holder.List(t.Context(), "lock:7*")
			line, err2 := holder.Waiters(t.Context(), "lock:7")
			return err == nil && err2 == nil && len(again) == 11 && len(line) == 1
		})
		cancel()
		<-out

		nodes[0].Kill()
		locktest.Await(t, "the others list it", func() bool {
			_, answers, err := redlatch.List(t.Context(), c, "lock:7")
			if answers[0].Err == nil {
				t.Fatalf("one node is down: %v, %v", err, answers)
			}
			return err == nil
		})
		nodes[1].Kill()
		if _, _, err := redlatch.List(t.Context(), c, "lock:7"); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("two nodes are down: %v", err)
		}
	})
}

// A lock whose key goes away while the node is asked for it is not listed as one that lasts for ever, nor, where
// somebody waits for it, as another library's.
func TestListOfALockThatGoesAway(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{0, 1} {
		t.Run(fmt.Sprint(waiting, " waits"), func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			proxy := redistest.NewProxy(t, server.Addr())
			c := locktest.Config(server.URL())
			lock := locktest.TryLock(t, locktest.Open(t, c), "a", redlatch.WithoutRenewal())
			if waiting > 0 {
				locktest.Do(t, server, "ZADD", "redlatch:{a}:queue:a", "1", "x:host")
			}
			proxy.OnCommand(func(c redistest.Command) redistest.Action {
				if c.Name() == "PTTL" {
					if _, err := server.Do("DEL", "a"); err != nil {
						t.Error(err)
					}
				}
				return redistest.Pass
			})
			locks, _, err := redlatch.List(t.Context(), locktest.Through(c, proxy.URL()), "*")
			if err != nil || len(locks) != waiting {
				t.Errorf("%+v, %v", locks, err)
			}
			for _, l := range locks {
				if l.Foreign || l.Holder.ID != "" || len(l.Waiting) != 1 || l.Waiting[0].Label != "host" {
					t.Errorf("%+v", l)
				}
			}
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Error(err)
			}
		})
	}
}

// A key that never expires on one node does not keep the lock for ever: the others that a quorum takes do not.
func TestListOfALockThatOneNodeKeeps(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	lock := locktest.TryLock(t, locktest.Open(t, c), t.Name(), redlatch.WithoutRenewal())
	locktest.Await(t, "the first node has it", func() bool { return locktest.Do(t, nodes[0], "PERSIST", t.Name()) == int64(1) })
	for _, on := range []int{3, 2} {
		locktest.Await(t, "so many nodes tell", func() bool {
			locks, _, err := redlatch.List(t.Context(), c, t.Name())
			if err != nil || len(locks) != 1 || locks[0].Nodes != on {
				return false
			}
			if left := locks[0].Left; left <= 0 || left > c.TTL {
				t.Errorf("on %d nodes it has %v left", on, left)
			}
			return true
		})
		locktest.Do(t, nodes[2], "DEL", t.Name())
	}
	_ = lock.Unlock(t.Context()) // one node has lost it
}

// A node that answers a little later than a quorum is not left out.
func TestListWaitsForASlowerNode(t *testing.T) {
	t.Parallel()
	proxies := redistest.Proxies(t, locktest.Shared(t, 3))
	proxies[2].Delay(redistest.Replies, 20*time.Millisecond, 0)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.NodeTimeout = 900 * time.Millisecond
	awaitAnswers(t, func() ([]redlatch.NodeAnswer, error) {
		_, answers, err := redlatch.List(t.Context(), c, t.Name())
		return answers, err
	})
}

// awaitAnswers waits until all nodes answer a call: of a busy machine one may be later.
func awaitAnswers(t *testing.T, call func() ([]redlatch.NodeAnswer, error)) {
	t.Helper()
	locktest.Await(t, "all nodes answer", func() bool {
		answers, err := call()
		return err == nil && !slices.ContainsFunc(answers, func(a redlatch.NodeAnswer) bool { return a.Err != nil })
	})
}

// Nor is one left out that is a little slower than two slow ones, where one name is looked up.
func TestLookUpWaitsForASlowerNode(t *testing.T) {
	t.Parallel()
	proxies := redistest.Proxies(t, locktest.Shared(t, 3))
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	for i, p := range proxies {
		p.Delay(redistest.Replies, 100*time.Millisecond+time.Duration(i)*5*time.Millisecond, 0)
	}
	awaitAnswers(t, func() ([]redlatch.NodeAnswer, error) {
		_, answers, err := redlatch.Permits(t.Context(), c, t.Name())
		return answers, err
	})
}

// List leaves no connection, neither to a server whose locks it lists nor to one that it refuses.
func TestListLeavesNoConnection(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for what, s := range map[string]*redistest.Server{"master": server, "replica": redistest.NewReplica(t, server)} {
		connections := func() int {
			return strings.Count(locktest.Do(t, s, "CLIENT", "LIST", "TYPE", "normal").(string), "\n")
		}
		before := connections()
		for range 3 {
			_, _, _ = redlatch.List(t.Context(), locktest.Config(s.URL()), "*")
		}
		locktest.Await(t, "they are closed to the "+what, func() bool { return connections() <= before })
	}
}
