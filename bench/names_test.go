package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// BenchmarkNames compares a lock of several names with one of one name, acquired and released by a lone
// caller: an iteration does each in turn, so that what changes with time falls on all.
func BenchmarkNames(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			l, err := openRedlatch(false)(addresses(servers(b, nodes)))
			if err != nil {
				b.Fatal(err)
			}
			defer l.close()
			client := l.(*redlatchLocker).client
			counts := []int{1, 2, 4, 16}
			sets := make([][]string, len(counts))
			for i, count := range counts {
				for k := range count {
					sets[i] = append(sets[i], fmt.Sprintf("names/%d/%d", count, k))
				}
			}
			took := make([]time.Duration, len(counts))
			var failed int
			for b.Loop() {
				for i, set := range sets {
					start := time.Now()
					lock, err := client.TryLock(b.Context(), set[0], redlatch.WithAlso(set[1:]...))
					if err == nil {
						err = lock.Unlock(b.Context())
					}
					took[i] += time.Since(start)
					if err != nil {
						failed++
					}
				}
			}
			for i, count := range counts[1:] {
				b.ReportMetric(float64(took[i+1])/float64(took[0]), fmt.Sprintf("of-1-name/%d-names", count))
			}
			b.ReportMetric(float64(failed), "failed")
		})
	}
}
