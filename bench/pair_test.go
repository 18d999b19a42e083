package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPair is what one lock and its release cost, a contestant at a time:
// for profiles, allocations and a comparison of two versions of one contestant.
// For one contestant beside another see BenchmarkSideBySide.
func BenchmarkPair(b *testing.B) {
	for _, c := range contestants {
		for _, nodes := range []int{1, 5} {
			if c.nodes < nodes {
				continue
			}
			for _, callers := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/nodes=%d/callers=%d", c.name, nodes, callers), func(b *testing.B) {
					l, err := c.open(addresses(servers(b, nodes)))
					if err != nil {
						b.Fatal(err)
					}
					defer l.close()
					// A contestant that waits for ever is no reason to.
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					defer cancel()
					for range 5 { // a busy machine's may fail
						if err = l.pair(ctx, "bench/0"); err == nil {
							break
						}
					}
					if err != nil {
						b.Fatal(err)
					}
					b.ReportAllocs()
					if callers == 1 {
						pairs(ctx, b, l)
					} else {
						pairsOf(ctx, b, l, callers)
					}
				})
			}
		}
	}
}

func pairs(ctx context.Context, b *testing.B, l locker) {
	failed := 0
	for b.Loop() {
		if err := l.pair(ctx, "bench/0"); err != nil {
			failed++
		}
	}
	b.ReportMetric(float64(failed), "failed")
}

// pairsOf shares b.N pairs among callers, which RunParallel would only have in
// multiples of the processors.
func pairsOf(ctx context.Context, b *testing.B, l locker, callers int) {
	var taken, failed atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range callers {
		all.Go(func() {
			name := fmt.Sprintf("bench/%d", i)
			for taken.Add(1) <= int64(b.N) {
				if err := l.pair(ctx, name); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(failed.Load()), "failed")
}
