package bench

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// BenchmarkOverload has 64 callers of one client acquire locks that are held for good, for as long as it
// lets them: how many it has at most with a TTL of 3 s, what it refuses, and what it loses.
func BenchmarkOverload(b *testing.B) {
	var g grid
	length := 20 * time.Second
	if testing.Short() {
		length = time.Second
	}
	for b.Loop() {
		on := servers(b, 3)
		l, err := openRedlatchWith(redlatch.Config{TTL: 3 * time.Second, NoQuarantine: true, Deployment: "overload"}, addresses(on))
		if err != nil {
			b.Fatal(err)
		}
		client := l.(*redlatchLocker).client
		var refused, failed atomic.Int64
		start := time.Now()
		atOnce(64, 64, func(caller int) {
			for i := 0; time.Since(start) < length; i++ {
				_, err := client.TryLock(b.Context(), fmt.Sprintf("overload-%d-%d", caller, i))
				switch {
				case err == nil:
				case errors.Is(err, redlatch.ErrOverloaded):
					refused.Add(1)
					time.Sleep(10 * time.Millisecond)
				default:
					failed.Add(1)
				}
			}
		})
		time.Sleep(length / 4)
		stats := client.Stats()
		const row = "redlatch"
		g.add(row, "held", float64(stats.Held))
		g.add(row, "lost", float64(stats.Lost))
		g.add(row, "refused", float64(refused.Load()))
		g.add(row, "failed", float64(failed.Load()))
		l.close()
	}
	b.ReportMetric(0, "ns/op")
	g.write(b)
}
