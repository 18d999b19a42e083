package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
	"github.com/redlatch/redlatch/oneshot"
)

// pending is in the error of a command that is not sent, as the node owes answers.
const pending = "unanswered commands are pending"

// moveToAHungMaster moves the slot of a name to the second master, which hangs from then on.
func (c *hurtCluster) moveToAHungMaster(t *testing.T, name string) {
	t.Helper()
	must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), c.Masters[1], nil))
	must(t, c.Masters[1].Pause())
	t.Cleanup(func() { c.Masters[1].Resume() })
}

// A slot has moved from one master to another, which hangs. A client that last locked in the slot before that goes
// on to look who holds a lock there. The answers that are owed are not the former master's: it is still asked for
// votes.
func TestClusterLookAtASlotThatMovedToAMasterThatHangs(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, fixTTL)
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		names := storm.NamesAt(0, 2)
		for _, name := range names {
			locktest.Unlock(t, locktest.TryLock(t, client, name))
		}
		c.moveToAHungMaster(t, names[0])
		locktest.Await(t, "the master that hangs is asked no more", func() bool {
			_, _, err := oneshot.New(client).Query(t.Context(), names[0])
			return err != nil && strings.Contains(err.Error(), pending)
		})
		locktest.Await(t, "the other votes", func() bool {
			lock, err := client.TryLock(t.Context(), names[1])
			if err == nil {
				locktest.Unlock(t, lock)
			} else if strings.Contains(err.Error(), pending) {
				t.Fatalf("the other is not asked: %v", err)
			}
			return err == nil
		})
	})
}

// A lock is unlocked whose slot has moved to a master that hangs. That too is not held against its former master.
func TestClusterUnlockWhereASlotMovedToAMasterThatHangs(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, 4*fixTTL) // so that it is not extended meanwhile
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		names := storm.NamesAt(0, 2)
		locktest.Unlock(t, locktest.TryLock(t, client, names[1]))
		held := locktest.TryLock(t, client, names[0])
		c.moveToAHungMaster(t, names[0])
		if err := held.Unlock(t.Context()); err == nil {
			t.Error("a master that hangs has released it")
		}
		begin := time.Now()
		locktest.Await(t, "the other votes", func() bool {
			lock, err := client.TryLock(t.Context(), names[1])
			if err == nil {
				locktest.Unlock(t, lock)
			} else if strings.Contains(err.Error(), pending) {
				t.Fatalf("the other is not asked: %v", err)
			}
			return err == nil && time.Since(begin) > 3*c.config.NodeTimeout
		})
	})
}

// Without the quarantine, a client that was idle votes in a slot that has moved to a master that hangs. It has not
// asked who has the slot: that is not held against the former master either.
func TestClusterVoteInASlotThatMovedToAMasterThatHangs(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, fixTTL)
		c.config.NoQuarantine = true
		client := locktest.Open(t, c.config)
		names := storm.NamesAt(0, 2)
		for _, name := range names {
			locktest.Unlock(t, locktest.TryLock(t, client, name))
		}
		c.moveToAHungMaster(t, names[0])
		locktest.Await(t, "the master that hangs is asked no more", func() bool {
			_, err := client.TryLock(t.Context(), names[0])
			return err != nil && strings.Contains(err.Error(), pending)
		})
		for range 10 {
			lock, err := client.TryLock(t.Context(), names[1])
			if err != nil {
				if strings.Contains(err.Error(), pending) {
					t.Fatalf("the other is not asked: %v", err)
				}
				continue // a busy machine was late
			}
			locktest.Unlock(t, lock)
		}
	})
}
