package waiting

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A client that cannot reach the node on which all others wait, and waits on another, gets the lock while they
// have it in turns; whichever of the nodes that is.
func TestClientThatWaitsOnAnotherNode(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	clients := clientsOf(t, c, 3)
	for tried, names := map[int]bool{}, 0; len(tried) < len(nodes); names++ {
		name := fmt.Sprintf("%s/%d", t.Name(), names)
		first := locktest.TryLock(t, clients[0], name)
		busy, stop := context.WithCancel(t.Context())
		waiting := locktest.LockIn(busy, clients[1], name)
		arbiter := awaitQueued(t, nodes, name, 1)
		locktest.Unlock(t, first)
		o := <-waiting
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		locktest.Unlock(t, o.Lock)
		if tried[arbiter] {
			stop()
			continue
		}
		tried[arbiter] = true

		proxies := redistest.Proxies(t, nodes)
		if err := proxies[arbiter].Refuse(true); err != nil {
			t.Fatal(err)
		}
		apart := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
		var others sync.WaitGroup
		for _, client := range clients {
			others.Go(func() {
				for {
					lock, err := client.Lock(busy, name)
					if err != nil {
						return
					}
					// So that the next has the lock while the third waits.
					for busy.Err() == nil && ticketsOn(t, nodes, name)[arbiter] < len(clients)-1 {
						time.Sleep(time.Millisecond)
					}
					locktest.Unlock(t, lock)
				}
			})
		}
		locktest.Await(t, "others wait", func() bool { return ticketsOn(t, nodes, name)[arbiter] == len(clients)-1 })
		lock, err := apart.Lock(locktest.Within(t, locktest.Patience), name)
		if err != nil {
			t.Errorf("beside those who wait on node %d: %v", arbiter, err)
		} else {
			locktest.Unlock(t, lock)
		}
		stop()
		others.Wait()
	}
}
