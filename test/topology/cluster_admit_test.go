package topology

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/storm"
)

// Where one master cannot be asked, Admit says which, and has vouched for the others.
func TestClusterAdmitBesideADeadMaster(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, fixTTL)
		client := locktest.Open(t, c.config)
		c.Masters[2].Kill()
		for range 20 { // which masters there are is asked of any server, at random
			err := client.Admit(t.Context(), storm.Node)
			if err == nil || !strings.Contains(err.Error(), "the master of slot 16383: ") {
				t.Fatalf("got %v, want an error that tells the dead master", err)
			}
		}
		c.atOnce(t, client, []string{storm.NameAt(0), storm.NameAt(1)})
	})
}

// An operator vouches for all masters. Before that is done for one of them, it gets a slot that is in use, without the keys. The word is
// for the slots that the master had when it was looked at.
func TestClusterAdmitIsForWhatWasSeen(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 0, 2*fixTTL)
		holder := locktest.Open(t, c.config)
		at, name := c.Masters[1], storm.NameAt(0)
		locktest.Do(t, at, "CONFIG", "RESETSTAT") // else nothing is marked, and nothing looked at again
		c.admit(t, holder)
		slots, err := c.SlotsOf(at)
		must(t, err)
		home := hashslot.TagOf(uint16(slices.Max(slots)))
		var held *redlatch.Lock
		var failed error
		amid := sync.OnceFunc(func() {
			if held = lockMeanwhile(t, holder, name); held != nil {
				failed = c.GiveSlots(locktest.Within(t, locktest.Patience), at, storm.SlotOf(name))
			}
		})
		operator := openStalling(t, c.config, home, false, amid)
		t.Log(operator.Admit(t.Context(), storm.Node))
		must(t, failed)
		lock, err := locktest.AwaitAnswer(t, locktest.Open(t, c.config), name)
		locktest.IsKeptOut(t, held, lock, err)
	})
}
