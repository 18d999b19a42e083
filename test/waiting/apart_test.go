package waiting

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
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

// Who waits on another node than all others is among those who are listed, once.
func TestWaiterOnAnotherNodeIsListed(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	first := locktest.TryLock(t, locktest.Open(t, c), t.Name())
	given, stop := context.WithCancel(t.Context())
	var outs []<-chan locktest.Outcome
	want := []string{"0", "1", "apart"}
	arbiter := 0
	for i, label := range want[:2] {
		labelled := c
		labelled.Label = label
		outs = append(outs, locktest.LockIn(given, locktest.Open(t, labelled), t.Name()))
		arbiter = awaitQueued(t, nodes, t.Name(), i+1)
	}
	proxies := redistest.Proxies(t, nodes)
	if err := proxies[arbiter].Refuse(true); err != nil {
		t.Fatal(err)
	}
	apart := locktest.Through(c, locktest.ProxyURLs(proxies)...)
	apart.Label = want[2]
	outs = append(outs, locktest.LockIn(given, locktest.Open(t, apart), t.Name()))
	var listed []string
	locktest.Await(t, "all who wait are listed", func() bool {
		waiters, err := redlatch.Waiters(t.Context(), c, t.Name())
		listed = nil
		for _, w := range waiters {
			listed = append(listed, w.Label)
		}
		return err == nil && len(listed) >= len(want)
	})
	if !slices.Equal(listed, want) {
		t.Errorf("there wait %q, want %q", listed, want)
	}
	stop()
	for _, out := range outs {
		if o := <-out; o.Err == nil {
			t.Error("it has the lock")
		}
	}
	locktest.Unlock(t, first)
}
