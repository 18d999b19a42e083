package faults

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A key whose release a node's network has lost again and again, so that the next try is some time off, is not left
// there by Close if the network is well by then.
func TestCloseReleasesWhereTheNetworkIsWell(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	for range 3 { // on a busy machine the last try, too, may be late
		closeAfterLosses(t, nodes, proxies)
		for i, s := range nodes[:2] {
			if id := locktest.Value(t, s, t.Name()); id != "" {
				t.Errorf("node %d has the key of %s, which was closed", i, id)
			}
		}
		if locktest.Value(t, nodes[2], t.Name()) == "" {
			return
		}
		locktest.Do(t, nodes[2], "DEL", t.Name())
	}
	t.Error("node 2 has the key of a lock whose client was closed")
}

// closeAfterLosses closes a client as soon as the network of the third node, which has lost the release of a lock
// again and again, is well.
func closeAfterLosses(t *testing.T, nodes []*redistest.Server, proxies []*redistest.Proxy) {
	t.Helper()
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	lock := locktest.TryLock(t, client, t.Name())
	locktest.Await(t, "the nodes have the key", func() bool {
		id := locktest.Value(t, nodes[0], t.Name()) // which may be the one that the lock did not wait for
		return id != "" && locktest.Value(t, nodes[2], t.Name()) == id
	})
	lost := make(chan struct{}, 100)
	proxies[2].OnCommand(func(c redistest.Command) redistest.Action {
		if c.Name() != "EVALSHA" {
			return redistest.Pass
		}
		lost <- struct{}{}
		return redistest.CutBefore
	})
	locktest.Unlock(t, lock)
	for range 7 { // the pause before the next is 0.6 s then, and longer later
		select {
		case <-lost:
		case <-time.After(locktest.Patience):
			t.Fatal("the release is not tried again")
		}
	}
	proxies[2].OnCommand(nil)
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
