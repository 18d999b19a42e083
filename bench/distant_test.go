package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// away is how much later a node answers that is on another machine.
const away = time.Millisecond

// BenchmarkDistant is BenchmarkSideBySide with one caller, over nodes that are not on
// this machine's loopback, as nodes are in use: five servers then do not wait for the
// processors that the client has.
func BenchmarkDistant(b *testing.B) {
	for _, nodes := range []int{1, 5} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { distant(b, nodes) })
	}
}

func distant(b *testing.B, nodes int) {
	on := servers(b, nodes)
	addrs := make([]string, nodes)
	for i, s := range on {
		p := redistest.NewProxy(b, s.Addr())
		p.Delay(redistest.Replies, away, 0)
		addrs[i] = p.Addr()
	}
	r := contest(b, enterAll(b, addrs), 1, on)
	r.write(os.Stdout, fmt.Sprintf("%d nodes %v away, 1 caller", nodes, away))
	r.record(b)
	for k, name := range r.names[1:] {
		b.ReportMetric(r.median(k+1, xMedian), name+"-x-floor-median")
	}
}
