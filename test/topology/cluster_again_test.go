package topology

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A slot moves, its names are used where it is then, and a replica that lacks that takes the master's place. The slot does
// not vote there, as a client sees, and moves on, or back: the admission key with which it came does not count any more.
func TestClusterSlotMovesOnFromAPromotedReplica(t *testing.T) {
	t.Parallel()
	for i, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			shown := false
			for ttl := fixTTL; !shown && !t.Failed(); ttl *= 2 {
				shown = slotMovesOn(t, binary, ttl, []int{2, 0}[i%2])
			}
		})
	}
}

// slotMovesOn reports whether the lock was held still when others tried for it.
func slotMovesOn(t *testing.T, binary string, ttl time.Duration, to int) (shown bool) {
	c := newHurtCluster(t, binary, 1, ttl)
	holder := locktest.Open(t, c.config)
	c.admit(t, holder)
	name := storm.NameAt(0)
	r := newRivals(t, c.config, name, false)
	c.uptime(t, c.Members()...)
	locktest.Unlock(t, locktest.TryLock(t, holder, name))
	must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), c.Masters[1], nil))
	must(t, c.HoldReplication(t.Context(), c.Masters[1], true))
	var held *redlatch.Lock
	locktest.Await(t, "the lock is held at the new master", func() bool {
		var err error
		held, err = holder.TryLock(t.Context(), name, redlatch.WithoutRenewal())
		return err == nil
	})
	must(t, c.FailOverByForce(locktest.Within(t, locktest.Patience), c.Replicas[1]))
	must(t, c.HoldReplication(t.Context(), c.Masters[1], false))
	must(t, c.AwaitServing(locktest.Within(t, locktest.Patience)))
	if v := locktest.Value(t, c.Replicas[1], name); v != "" {
		t.Fatalf("the lock has come along: %q", v)
	}
	locktest.Await(t, "a client sees that the slot does not vote", func() bool {
		_, err := r.idle.TryLock(t.Context(), "{"+name+"}used")
		return errors.Is(err, redlatch.ErrNotAdmitted)
	})
	must(t, c.MoveSlot(locktest.Within(t, locktest.Patience), storm.SlotOf(name), c.Masters[to], nil))
	return r.chase(t, held, c.d)
}
