package topology

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// fixTTL is long enough for a slot to be given away while a lock is valid.
const fixTTL = 6 * time.Second

// eachRivals runs f on every kind of server, with and without a client that is busy: with a
// TTL, and with longer ones while f reports that the machine was too slow for that one.
func eachRivals(t *testing.T, ttl time.Duration, f func(t *testing.T, binary string, busy bool, ttl time.Duration) (shown bool)) {
	t.Helper()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, busy := range []bool{true, false} {
			t.Run(fmt.Sprintf("busy=%t", busy), func(t *testing.T) {
				t.Parallel()
				shown, longest := false, 8*ttl
				for ttl := ttl; !shown && !t.Failed(); ttl *= 2 {
					if ttl > longest {
						t.Fatalf("the lock is over before the rivals come, with a TTL of %v", longest)
					}
					t.Run(fmt.Sprint("TTL=", ttl), func(t *testing.T) { shown = f(t, binary, busy, ttl) })
				}
			})
		}
	})
}

// A master dies with a lock that is held, and its slots are given to masters that
// are vouched for and in use, without its keys.
func TestClusterFixGivesNoSecondHolder(t *testing.T) {
	t.Parallel()
	eachRivals(t, fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
		c := newHurtCluster(t, binary, 0, ttl)
		holder := locktest.Open(t, c.config)
		c.admit(t, holder)
		for i := range c.Masters {
			locktest.Unlock(t, locktest.TryLock(t, holder, storm.NameAt(i)))
		}
		name := storm.NameAt(0)
		r := newRivals(t, c.config, name, busy)
		held := locktest.TryLock(t, holder, name, redlatch.WithoutRenewal())
		c.Masters[0].Kill()
		if _, err := c.Fix(locktest.Within(t, locktest.Patience)); err != nil {
			t.Fatal(err)
		}
		return r.chase(t, held, c.d)
	})
}

// The same, where the masters that get the slots have been up for long and the
// deployment has never used them: its only slots were the dead one's.
func TestClusterFixToMastersNeverUsed(t *testing.T) {
	t.Parallel()
	eachRivals(t, fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
		c := newHurtCluster(t, binary, 0, ttl)
		c.uptime(t, c.Masters...)
		name := storm.NameAt(0)
		holder := locktest.Open(t, c.config)
		lock, err := holder.Lock(locktest.Within(t, c.d+locktest.Patience), name)
		if err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, lock)
		r := newRivals(t, c.config, name, busy)
		held := locktest.TryLock(t, holder, name, redlatch.WithoutRenewal())
		c.Masters[0].Kill()
		if _, err := c.Fix(locktest.Within(t, locktest.Patience)); err != nil {
			t.Fatal(err)
		}
		return r.chase(t, held, c.d)
	})
}

// A master had a slot when it was vouched for, gave it away key by key, and gets it
// back without the keys that it has by now.
func TestClusterSlotComesBackWithoutItsKeys(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{true, false} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			t.Parallel()
			eachRivals(t, fixTTL, func(t *testing.T, binary string, busy bool, ttl time.Duration) bool {
				c := newHurtCluster(t, binary, 0, ttl)
				holder := locktest.Open(t, c.config)
				c.admit(t, holder)
				name := storm.NameAt(0)
				r := newRivals(t, c.config, name, busy) // which use the slot where it was first
				c.uptime(t, c.Masters...)
				from, to := c.Masters[0], c.Masters[1]
				must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), to, nil))
				var held *redlatch.Lock
				locktest.Await(t, "the lock is held at the new master", func() (ok bool) {
					var err error
					held, err = holder.TryLock(t.Context(), name, redlatch.WithoutRenewal())
					return err == nil
				})
				if locktest.Value(t, to, name) == "" && held.Err() == nil {
					t.Fatal("the lock is not at the new master")
				}
				if killed {
					to.Kill()
				}
				must(t, c.GiveSlots(locktest.Within(t, locktest.Patience), from, storm.SlotOf(name)))
				if v := locktest.Value(t, from, name); v != "" {
					t.Fatalf("the lock has come along: %q", v)
				}
				return r.chase(t, held, c.d)
			})
		})
	}
}
