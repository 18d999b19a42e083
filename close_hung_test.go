package redlatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Close stays for a node that hangs no longer than one step, and hardly at all for one that has
// never answered; what was unlocked before is free on the others. On a busy machine it may take
// longer, but not each time.
func TestCloseBesideOneHung(t *testing.T) {
	t.Parallel()
	for _, hung := range []string{"from the start", "later"} {
		for _, n := range []int{3, 5} {
			t.Run(fmt.Sprintf("%s/N=%d", hung, n), func(t *testing.T) {
				t.Parallel()
				nodes := shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				c := config(proxyURLs(proxies)...)
				c.NodeTimeout = 500 * time.Millisecond
				last := proxies[n-1]
				const tries = 10
				for try := 1; ; try++ {
					last.BlackHole(redistest.Both, hung != "later")
					client := open(t, c)
					if hung == "later" {
						await(t, "all are reached", func() bool { return client.Stats().Contacted == n })
						last.BlackHole(redistest.Both, true)
					}
					name := fmt.Sprintf("%s/%d", t.Name(), try)
					unlock(t, tryLock(t, client, name))
					most := c.NodeTimeout + c.NodeTimeout/2 // it was twice as much, or four times
					if hung != "later" {
						most = c.NodeTimeout
					}
					start := time.Now()
					if err := client.Close(); err != nil {
						t.Fatal(err)
					}
					took := time.Since(start)
					last.BlackHole(redistest.Both, false)
					for _, s := range nodes[:n-1] {
						await(t, "it is free", func() bool { return value(t, s, name) == "" })
					}
					if took < most {
						t.Logf("closed after %v", took)
						break
					}
					if try == tries {
						t.Fatalf("%d times, Close took longer than %v; at last %v", tries, most, took)
					}
				}
			})
		}
	}
}

// A client whose Open has failed, or found nobody, is closed at once.
func TestCloseUnopened(t *testing.T) {
	t.Parallel()
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
