package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkSideBySide plays one round of all contestants an iteration, and
// prints a table of medians over the rounds.
func BenchmarkSideBySide(b *testing.B) {
	for _, nodes := range []int{1, 5} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("nodes=%d/callers=%d", nodes, callers), func(b *testing.B) {
				sideBySide(b, nodes, callers)
			})
		}
	}
}

func sideBySide(b *testing.B, nodes, callers int) {
	on := servers(b, nodes)
	entrants := enterAll(b, addresses(on))
	var sent []float64
	for _, c := range contestantsOver(nodes) {
		n, err := commandsSent(b.Context(), c, on)
		if err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
		sent = append(sent, n)
	}
	r := contest(b, entrants, callers, on)
	r.sent = sent
	r.write(os.Stdout, fmt.Sprintf("%d nodes, %d callers", nodes, callers))
	r.record(b)
	for k, name := range r.names[1:] {
		b.ReportMetric(r.median(k+1, xMedian), name+"-x-floor-median")
		b.ReportMetric(r.median(k+1, xRate), name+"-x-floor-rate")
	}
}

// enterAll connects all contestants that can lock over so many nodes.
func enterAll(b *testing.B, addrs []string) (entrants []entrant) {
	b.Helper()
	for _, c := range contestantsOver(len(addrs)) {
		l, err := c.open(addrs)
		if err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
		b.Cleanup(l.close)
		entrants = append(entrants, entrant{name: c.name, locker: l})
	}
	return entrants
}

// commandsSent counts what a contestant sends for a pair, to all nodes together,
// by looking on: the servers' own counts include what their scripts call.
func commandsSent(ctx context.Context, c contestant, on []*redistest.Server) (float64, error) {
	proxies := make([]*redistest.Proxy, len(on))
	addrs := make([]string, len(on))
	for i, s := range on {
		p, err := redistest.StartProxy(s.Addr(), redistest.ProxyOptions{})
		if err != nil {
			return 0, err
		}
		defer p.Close()
		proxies[i], addrs[i] = p, p.Addr()
	}
	l, err := c.open(addrs)
	if err != nil {
		return 0, err
	}
	defer l.close()
	seen := func() (n int) {
		for _, p := range proxies {
			for _, count := range p.Commands() {
				n += count
			}
		}
		return n
	}
	// Connecting and loading scripts do not count. What the last pair has still
	// to send to the nodes it did not wait for is made up for by what the last
	// one before the count had.
	const warm, pairs = 10, 100
	before := 0
	for i := range warm + pairs {
		if i == warm {
			before = seen()
		}
		if err := l.pair(ctx, "bench/sent"); err != nil {
			return 0, err
		}
	}
	return float64(seen()-before) / pairs, nil
}
