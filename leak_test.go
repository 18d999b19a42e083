package redlatch_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// leakedGoroutines returns the stacks of the goroutines of this module, and of
// the driver's, that are still there; they get some time to end.
func leakedGoroutines() string {
	deadline := time.Now().Add(patience)
	for {
		var leaked []string
		for _, stack := range stacks() {
			if strings.Contains(stack, "redlatch_test.leakedGoroutines") {
				continue
			}
			if strings.Contains(stack, "redlatch") || strings.Contains(stack, "rueidis") {
				leaked = append(leaked, stack)
			}
		}
		if len(leaked) == 0 || time.Now().After(deadline) {
			return strings.Join(leaked, "\n\n")
		}
		runtime.Gosched()
		<-time.After(10 * time.Millisecond)
	}
}

func stacks() []string {
	buffer := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buffer, true)
		if n < len(buffer) {
			return strings.Split(string(buffer[:n]), "\n\n")
		}
		buffer = make([]byte, 2*len(buffer))
	}
}

// A client that was closed leaves no goroutine, also when nodes were hung, down
// or never there. Not parallel: it counts those of the process.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	nodes := shared(t, 5)
	proxies := redistest.Proxies(t, nodes)
	before := runtime.NumGoroutine()
	for round := range 2 {
		c := config(proxyURLs(proxies)...)
		c.NodeTimeout = time.Second
		client := open(t, c)
		held := tryLock(t, client, "held")
		released := tryLock(t, client, "released")
		proxies[0].HoldBack(redistest.Both, true)
		if err := proxies[1].Refuse(true); err != nil {
			t.Fatal(err)
		}
		proxies[1].Cut()
		unlock(t, released)
		tryLock(t, client, "more")
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
	await(t, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
}
