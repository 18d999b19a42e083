package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
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
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				untilKept(t, func() error { return slotMoves(t, binary, target) })
			})
		})
	}
}

// A slot is moved, and used after each of its keys: that it is not admitted where its keys are already, by one who sees them there, does
// not count when the move is over. In the last slot of a master its record moves along.
func TestClusterSlotIsUsedWhileItMoves(t *testing.T) {
	t.Parallel()
	for what, tag := range map[string]string{"a slot": storm.NameAt(0), "the last slot": hashslot.TagOf(5460)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				c := newHurtCluster(t, binary, 0, locktest.TTL)
				holder, other := locktest.Open(t, c.config), locktest.Open(t, c.config)
				c.admit(t, holder)
				name := func(what string) string { return "{" + tag + "}" + what }
				locktest.Unlock(t, locktest.TryLock(t, other, name("used")))
				held := locktest.TryLock(t, holder, name("held"), redlatch.WithoutRenewal())
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name("")), c.Masters[1], func(string) {
					for range 3 {
						if lock, err := other.TryLock(t.Context(), name("used")); err == nil {
							_ = lock.Unlock(t.Context()) // some keys may be here, and some there
						}
						_ = held.Extend(t.Context(), locktest.TTL)
					}
				}))
				if _, err := lockSoon(t, other, name("new")); err != nil {
					t.Errorf("another lock in the slot: %v, want it granted at once", err)
				}
				locktest.Await(t, "the lock is extended", func() bool { return held.Extend(t.Context(), locktest.TTL) == nil })
			})
		})
	}
}

// slotMoves returns why the lock was lost.
func slotMoves(t *testing.T, binary string, target func(*testing.T, *hurtCluster) *redistest.Server) error {
	// Long enough to examine the receiving master on a busy machine before the lock runs out.
	c := newHurtCluster(t, binary, 0, 3*fixTTL/2)
	holder, other := locktest.Open(t, c.config), locktest.Open(t, c.config)
	c.admit(t, holder)
	name := storm.NameAt(0)
	locktest.Unlock(t, locktest.TryLock(t, other, "{"+name+"}used"))
	held := locktest.TryLock(t, holder, name)
	elsewhere := locktest.TryLock(t, holder, storm.NameAt(1))

	move := func(to *redistest.Server) error {
		t.Helper()
		must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
		return c.worksAt(t, to, other, held)
	}
	if target == nil {
		if err := move(c.Masters[1]); err != nil {
			return err
		}
		if err := move(c.Masters[0]); err != nil {
			return err
		}
	} else {
		to := target(t, c)
		// The lock is renewed while both masters are up, else nobody knows that the
		// receiving one has not restarted since.
		until := held.Until()
		locktest.Await(t, "the lock is renewed", func() bool { return held.Err() != nil || held.Until().Sub(until) > 2*c.config.TTL/3 })
		if err := move(to); err != nil {
			return err
		}
	}
	if err := elsewhere.Err(); err != nil {
		return fmt.Errorf("in another slot: %w", err)
	}
	locktest.Unlock(t, elsewhere)

	// What the receiving master had before may wait once.
	lock, err := other.Lock(locktest.Within(t, c.d+locktest.Patience), storm.NamesAt(1, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, lock)
	return nil
}

// With Replicas, a slot moves to a master that knows the script since long. Locks are
// granted there, and those that are held are extended.
func TestClusterSlotMovesWithReplicas(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		untilKept(t, func() error { return slotMovesWithReplicas(t, binary) })
	})
}

// slotMovesWithReplicas returns why the lock was lost.
func slotMovesWithReplicas(t *testing.T, binary string) error {
	c := newHurtCluster(t, binary, 1, 2*fixTTL)
	c.config.Replicas, c.config.NodeTimeout = redlatch.Replicas{Count: 1, Timeout: 300 * time.Millisecond}, 400*time.Millisecond
	holder, other := locktest.Open(t, c.config), locktest.Open(t, c.config)
	c.admit(t, holder)
	for i := range c.Masters { // each knows the script, and each client is known
		for _, client := range []*redlatch.Client{holder, other} {
			lock, err := client.Lock(locktest.Within(t, locktest.Patience), storm.NameAt(i))
			if err != nil {
				t.Fatal(err)
			}
			locktest.Unlock(t, lock)
		}
	}
	name, to := storm.NameAt(0), c.Masters[2]
	held, err := holder.Lock(locktest.Within(t, locktest.Patience), name)
	if err != nil {
		t.Fatal(err)
	}
	must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
	if err := c.worksAt(t, to, other, held); err != nil {
		return err
	}
	conn, err := c.Replicas[2].Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Do("READONLY"); err != nil {
		t.Fatal(err)
	}
	if v, err := conn.Do("GET", name); err != nil || v != locktest.Value(t, to, name) {
		t.Errorf("the replica of the new master has %v, %v", v, err)
	}
	locktest.Unlock(t, held)
	lock, err := other.Lock(locktest.Within(t, locktest.Patience), name)
	if err != nil {
		t.Fatalf("the lock in the moved slot: %v", err)
	}
	locktest.Unlock(t, lock)
	return nil
}

// Whether the server knows WAIT is asked of the master that votes: a replica would refuse it.
func TestClusterWithReplicasIsAlwaysServed(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, 2*fixTTL)
		c.admit(t, locktest.Open(t, c.config))
		c.config.Replicas, c.config.NodeTimeout = redlatch.Replicas{Count: 1, Timeout: 300 * time.Millisecond}, 400*time.Millisecond
		for range 10 {
			client := locktest.Open(t, c.config)
			for i := range c.Masters {
				lock, err := client.Lock(locktest.Within(t, locktest.Patience), storm.NameAt(i))
				if err != nil {
					t.Fatal(err)
				}
				locktest.Unlock(t, lock)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
