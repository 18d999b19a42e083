package locking

import (
	"runtime"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A client that was closed leaves no goroutine, also when nodes were hung, down
// or never there. Not parallel: it counts those of the process.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	nodes := locktest.Shared(t, 5)
	proxies := redistest.Proxies(t, nodes)
	before := runtime.NumGoroutine()
	for round := range 2 {
		c := locktest.Config(locktest.ProxyURLs(proxies)...)
		c.NodeTimeout = time.Second
		client := locktest.Open(t, c)
		held := locktest.TryLock(t, client, "held")
		released := locktest.TryLock(t, client, "released")
		proxies[0].HoldBack(redistest.Both, true)
		if err := proxies[1].Refuse(true); err != nil {
			t.Fatal(err)
		}
		proxies[1].Cut()
		locktest.Unlock(t, released)
		locktest.TryLock(t, client, "more")
		start := time.Now()
		if err := client.Close(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		t.Logf("closed with one node hung and one refusing after %v", time.Since(start).Round(time.Millisecond))
		if held.Err() == nil {
			t.Error("the lock outlived its client")
		}
		proxies[0].HoldBack(redistest.Both, false)
		if err := proxies[1].Refuse(false); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range proxies {
		p.Cut() // the proxies' own goroutines are not the subject
	}
	locktest.Await(t, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
}
