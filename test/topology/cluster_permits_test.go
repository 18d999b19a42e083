package topology

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// The permits of a name, and their wait queue, are at the master of the name's hash slot.
func TestClusterPermits(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3)
	conf := locktest.Config(clusterURL(servers))
	holder, other := locktest.Open(t, conf), locktest.Open(t, conf)
	name, two := storm.NameAt(1), redlatch.WithPermits(2)
	if _, err := locktest.AwaitAnswer(t, holder, name); err != nil { // its master is known from then on
		t.Fatal(err)
	}
	held := []*redlatch.Lock{locktest.TryLock(t, holder, name, two), locktest.TryLock(t, other, name, two)}
	if held[0].Slot() == held[1].Slot() {
		t.Errorf("both have slot %d", held[0].Slot())
	}
	for slot := range held {
		if locktest.Value(t, servers[1], fmt.Sprintf("redlatch:{%s}:permit:%d:%[1]s", name, slot)) == "" {
			t.Errorf("slot %d is not at the master", slot)
		}
	}
	if _, err := locktest.TryInTime(t, other, name, two); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("a third: %v", err)
	}
	next := locktest.LockIn(locktest.Within(t, locktest.Patience), other, name, two)
	locktest.Extend(t, held[1], conf.TTL)
	locktest.Unlock(t, held[0])
	if o := <-next; o.Err != nil || o.Lock.Slot() != held[0].Slot() || o.Lock.Token() <= held[0].Token() {
		t.Errorf("who waits: %+v", o)
	} else {
		locktest.Unlock(t, o.Lock)
	}
	locktest.Unlock(t, held[1])
}
