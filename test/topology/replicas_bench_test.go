package topology

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What an acknowledgement by a replica costs a lock and its release, of names
// that nobody else wants: alone, and where many callers share the WAITs.
func BenchmarkReplicas(b *testing.B) {
	master := redistest.New(b)
	redistest.NewReplica(b, master)
	for _, replicas := range []int{0, 1} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("replicas=%d/callers=%d", replicas, callers), func(b *testing.B) {
				client, err := redlatch.Open(redlatch.Config{
					Nodes: []string{master.URL()}, NoQuarantine: true,
					NodeTimeout: 400 * time.Millisecond, Replicas: redlatch.Replicas{Count: replicas, Timeout: 300 * time.Millisecond},
				})
				if err != nil {
					b.Fatal(err)
				}
				defer client.Close()
				warm, err := client.Lock(b.Context(), "warm")
				if err != nil {
					b.Fatal(err)
				}
				if err := warm.Unlock(b.Context()); err != nil {
					b.Fatal(err)
				}
				var names atomic.Int64
				b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					name := strconv.FormatInt(names.Add(1), 10)
					if callers == 1 && name != "1" {
						return // one caller in all
					}
					for pb.Next() {
						lock, err := client.TryLock(b.Context(), name)
						if err != nil {
							b.Error(err)
							return
						}
						if err := lock.Unlock(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
