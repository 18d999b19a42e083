package topology

import (
	"context"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// In a Cluster leaders are seen one after the other, whichever master has the slot.
func TestObserverOfACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3)
	c := locktest.Config(clusterURL(servers))
	leader, follower := locktest.Open(t, c), locktest.Open(t, c)
	for i := range 3 {
		name, want := storm.NameAt(i), 0
		ctx, cancel := context.WithCancel(locktest.Within(t, locktest.Patience))
		lead := func() *redlatch.Lock {
			return locktest.TryLock(t, leader, name, redlatch.WithLabel(fmt.Sprint("leader ", want)))
		}
		lock, last := (*redlatch.Lock)(nil), "none yet"
		for holder, err := range follower.Observe(ctx, name) {
			switch {
			case err != nil:
				t.Logf("%s: %v", name, err)
			case holder.Label == last: // after an error
			case holder.Label == "" && lock == nil:
				lock = lead()
			case holder.Label == fmt.Sprint("leader ", want):
				locktest.Unlock(t, lock)
				lock = nil
				if want++; want == 2 {
					cancel()
				}
			default:
				t.Errorf("%s: %q after %q", name, holder.Label, last)
			}
			last = holder.Label
		}
		if want != 2 {
			t.Errorf("%s: %d leaders were seen", name, want)
		}
		cancel()
	}
}
