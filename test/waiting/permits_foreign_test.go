package waiting

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Nobody waits for the key of one slot. What somebody wrote where such waiters would be named makes
// no slot another: each holder has its own, on all nodes.
func TestPermitsBesideForeignKeys(t *testing.T) {
	t.Parallel()
	const k = 2
	for _, n := range []int{1, 3} {
		for _, value := range []string{"-", "=nobody/1", "garbage", "nobody/1 1 "} {
			nodes := locktest.Shared(t, n)
			client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
			for i := range 8 { // each begins with any slot
				name := fmt.Sprintf("foreign-%d-%q-%d", n, value, i)
				for _, s := range nodes {
					// who was woken up for that long was not woken up by us
					locktest.Do(t, s, "SET", "redlatch:{"+name+"}:next:"+locktest.PermitsKey(name), "nobody/1 9999999999999 ")
					for slot := range k {
						locktest.Do(t, s, "SET", "redlatch:{"+name+"}:next:"+locktest.SlotKey(name, slot), value)
					}
				}
				held := make(map[int]*redlatch.Lock)
				for range k + 1 {
					lock, err := locktest.TryInTime(t, client, name, redlatch.WithPermits(k))
					if err != nil {
						continue
					}
					if held[lock.Slot()] != nil {
						t.Errorf("%d nodes, %q: two have slot %d", n, value, lock.Slot())
					}
					held[lock.Slot()] = lock
				}
				for _, lock := range held {
					locktest.Extend(t, lock, locktest.TTL)
					locktest.Unlock(t, lock)
				}
				if len(held) != k {
					t.Errorf("%d nodes, %q: %d of %d permits were given", n, value, len(held), k)
				}
			}
		}
	}
}

// A foreign client has a slot. Who waits does not find out only by the next heartbeat that it is free.
func TestWaitForAForeignPermit(t *testing.T) {
	t.Parallel()
	node := locktest.Shared(t, 1)[0]
	client := locktest.Open(t, locktest.Config(node.URL()))
	locktest.Soon(t, "the permit was free", leastHeartbeat/2, func(n int) time.Duration {
		name := fmt.Sprint(t.Name(), n)
		locktest.Do(t, node, "SET", locktest.SlotKey(name, 0), "theirs", "PX", "60000")
		out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, name, redlatch.WithPermits(1))
		locktest.Await(t, "it is queued", func() bool {
			return locktest.Do(t, node, "EXISTS", "redlatch:{"+name+"}:queue:"+locktest.PermitsKey(name)).(int64) == 1
		})
		<-time.After(50 * time.Millisecond)
		start := time.Now()
		locktest.Do(t, node, "DEL", locktest.SlotKey(name, 0))
		o := <-out
		took := time.Since(start)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		locktest.Unlock(t, o.Lock)
		return took
	})
}
