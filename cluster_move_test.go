package redlatch_test

import (
	"errors"
	"github.com/redlatch/redlatch/internal/storm"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A slot is moved key by key, as resharding does, to a master that nobody has vouched
// for and that has been up for less than the wait, or to one that is in use. The lock
// that is held there is renewed before, during and after; others are granted in the slot
// right after.
func TestClusterReshardingLosesNoLock(t *testing.T) {
	t.Parallel()
	for what, target := range map[string]func(t *testing.T, c *hurtCluster) *redistest.Server{
		"to another":     func(t *testing.T, c *hurtCluster) *redistest.Server { return c.Masters[1] },
		"to a new one":   func(t *testing.T, c *hurtCluster) *redistest.Server { return c.NewMaster(t) },
		"there and back": nil,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, binary string) {
				c := newHurtCluster(t, binary, 0, fixTTL)
				holder, other := open(t, c.config), open(t, c.config)
				c.admit(t, holder)
				name := storm.NameAt(0)
				unlock(t, tryLock(t, other, "{"+name+"}used"))
				held := tryLock(t, holder, name)
				elsewhere := tryLock(t, holder, storm.NameAt(1))

				between := func(string) {
					t.Helper()
					if err := held.Err(); err != nil {
						t.Fatalf("the lock is lost: %v", err)
					}
				}
				move := func(to *redistest.Server) {
					t.Helper()
					if err := c.MoveSlot(within(t, patience), storm.SlotOf(name), to, between); err != nil {
						t.Fatal(err)
					}
					c.worksAt(t, to, other, held)
				}
				if target == nil {
					move(c.Masters[1])
					move(c.Masters[0])
				} else {
					to := target(t, c)
					// The lock is renewed while both masters are up, else nobody knows that the
					// receiving one has not restarted since.
					until := held.Until()
					await(t, "the lock is renewed", func() bool { return held.Until().Sub(until) > 2*c.config.TTL/3 })
					move(to)
				}
				if err := elsewhere.Err(); err != nil {
					t.Errorf("a lock in another slot: %v", err)
				}
				unlock(t, elsewhere)

				// What the receiving master had before may wait once.
				lock, err := other.Lock(within(t, c.d+patience), storm.NamesAt(1, 1)[0])
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lock)
			})
		})
	}
}

// worksAt checks that the slot of a lock that is held is in use at the master that it
// was moved to: the lock is extended, renewed for longer than its TTL, and others in the
// slot are granted at once.
func (c *hurtCluster) worksAt(t *testing.T, to *redistest.Server, other *redlatch.Client, held *redlatch.Lock) {
	t.Helper()
	if value(t, to, held.Name()) == "" {
		t.Fatal("the lock has not come along")
	}
	since := serverTime(t, to)
	name := "{" + held.Name() + "}more"
	lock, err := other.Lock(within(t, c.d+patience), name)
	if err != nil {
		t.Fatalf("another lock in the slot: %v", err)
	}
	if passed := serverTime(t, to).Sub(since); passed > c.d/2 {
		t.Errorf("another lock in the slot was granted after %v", passed)
	}
	unlock(t, lock)
	await(t, "the lock is extended", func() bool {
		if err := held.Err(); err != nil {
			t.Fatalf("the lock is lost: %v", err)
		}
		return held.Extend(t.Context(), c.config.TTL) == nil
	})
	if _, err := awaitAnswer(t, other, held.Name()); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("another: %v, want ErrHeld", err)
	}
	until := held.Until()
	await(t, "the lock is renewed for longer than its TTL", func() bool {
		if err := held.Err(); err != nil {
			t.Fatalf("the lock is lost: %v", err)
		}
		return held.Until().Sub(until) > c.config.TTL+time.Second
	})
}

// With Replicas, a slot moves to a master that knows the script since long. Locks are
// granted there, and those that are held are extended.
func TestClusterSlotMovesWithReplicas(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, 2*fixTTL)
		c.config.Replicas, c.config.NodeTimeout = redlatch.Replicas{Count: 1, Timeout: 300 * time.Millisecond}, 400*time.Millisecond
		holder, other := open(t, c.config), open(t, c.config)
		c.admit(t, holder)
		for i := range c.Masters { // each knows the script, and each client is known
			for _, client := range []*redlatch.Client{holder, other} {
				lock, err := client.Lock(within(t, patience), storm.NameAt(i))
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lock)
			}
		}
		name, to := storm.NameAt(0), c.Masters[2]
		held, err := holder.Lock(within(t, patience), name)
		if err != nil {
			t.Fatal(err)
		}
		must(t, c.MoveSlot(within(t, patience), storm.SlotOf(name), to, nil))
		c.worksAt(t, to, other, held)
		conn, err := c.Replicas[2].Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Do("READONLY"); err != nil {
			t.Fatal(err)
		}
		if v, err := conn.Do("GET", name); err != nil || v != value(t, to, name) {
			t.Errorf("the replica of the new master has %v, %v", v, err)
		}
		unlock(t, held)
		lock, err := other.Lock(within(t, patience), name)
		if err != nil {
			t.Fatalf("the lock in the moved slot: %v", err)
		}
		unlock(t, lock)
	})
}

// Whether the server knows WAIT is asked of the master that votes: a replica would refuse it.
func TestClusterWithReplicasIsAlwaysServed(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, 2*fixTTL)
		c.admit(t, open(t, c.config))
		c.config.Replicas, c.config.NodeTimeout = redlatch.Replicas{Count: 1, Timeout: 300 * time.Millisecond}, 400*time.Millisecond
		for range 10 {
			client := open(t, c.config)
			for i := range c.Masters {
				lock, err := client.Lock(within(t, patience), storm.NameAt(i))
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lock)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
