package bench

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// slow is how much later than the others the slow node answers.
const slow = 20 * time.Millisecond

// BenchmarkDegraded compares five nodes of which one is slow or stopped with
// five that are up, in the same rounds. The last node is behind a proxy where a
// slow one is, also in what that is compared with: the proxy shares this
// process's processors.
func BenchmarkDegraded(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { degraded(b, callers) })
	}
}

func degraded(b *testing.B, callers int) {
	on := servers(b, 5)
	up := addresses(on)
	proxy := func(delay time.Duration) string {
		p := redistest.NewProxy(b, on[4].Addr())
		p.Delay(redistest.Replies, delay, 0)
		return p.Addr()
	}
	with := func(last string) []string { return append(slices.Clone(up[:4]), last) }
	near, far := with(proxy(0)), with(proxy(slow))

	stopped := redistest.New(b)

	var entrants []entrant
	enter := func(name string, base int, l locker, err error) {
		b.Helper()
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		b.Cleanup(l.close)
		entrants = append(entrants, entrant{name: name, base: base, locker: l})
	}
	open := func(deployment string, addrs []string) (locker, error) {
		return openRedlatchWith(redlatch.Config{NoQuarantine: true, Deployment: deployment}, addrs)
	}
	l, err := open("bench-up", up)
	enter("redlatch, all up", 0, l, err)
	l, err = open("bench-stopped", with(stopped.Addr()))
	enter("redlatch, one stopped", 0, l, err)
	l, err = open("bench-near", near)
	enter("redlatch, all up, proxy", 2, l, err)
	l, err = open("bench-far", far)
	enter("redlatch, one slow", 2, l, err)
	l, err = openRedsync(near)
	enter("redsync, all up, proxy", 4, l, err)
	l, err = openRedsync(far)
	enter("redsync, one slow", 4, l, err)

	if err := stopped.Pause(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stopped.Resume() }) // before the clients close, which may wait for it

	r := contest(b, entrants, callers, on)
	r.write(os.Stdout, fmt.Sprintf("5 nodes, %d callers", callers))
	r.record(b)
	b.ReportMetric(r.median(1, xMedian), "stopped-x-up-median")
	b.ReportMetric(r.median(3, xMedian), "slow-x-up-median")
}
