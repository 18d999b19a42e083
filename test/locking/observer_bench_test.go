package locking

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// counting is the least that an Observer does.
type counting struct{ events atomic.Uint64 }

func (c *counting) Observe(context.Context, redlatch.Event) { c.events.Add(1) }

// BenchmarkObserver plays a round an iteration, of pairs of a lock and its release on one node
// without an Observer, without one again, which tells what is noise, and with one that counts. It
// reports medians of the rounds' ratios of times, and allocations a pair.
func BenchmarkObserver(b *testing.B) {
	const pairs = 500
	server := redistest.New(b)
	observer := new(counting)
	var clients []*redlatch.Client
	for _, o := range []redlatch.Observer{nil, nil, observer} {
		client, err := redlatch.Open(redlatch.Config{Nodes: []string{server.URL()}, NoQuarantine: true, NodeTimeout: time.Second, Observer: o})
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	play := func(client *redlatch.Client) (took time.Duration, allocs uint64) {
		runtime.GC() // nobody pays for another's garbage
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		for range pairs {
			lock, err := client.TryLock(b.Context(), "bench")
			if err != nil {
				b.Fatal(err)
			}
			if err := lock.Unlock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		took = time.Since(start)
		runtime.ReadMemStats(&after)
		return took, after.Mallocs - before.Mallocs
	}
	for _, client := range clients {
		play(client)
	}
	var noise, ratio []float64
	var allocs [3][]uint64
	round := 0
	for b.Loop() {
		var took [3]time.Duration
		for i := range clients {
			k := (i + round) % len(clients)
			d, n := play(clients[k])
			took[k], allocs[k] = d, append(allocs[k], n)
		}
		noise = append(noise, float64(took[1])/float64(took[0]))
		ratio = append(ratio, float64(took[2])/float64(took[0]))
		round++
	}
	b.ReportMetric(0, "ns/op") // of a whole round
	b.ReportMetric(median(noise), "x-without")
	b.ReportMetric(median(ratio), "x-with")
	b.ReportMetric(float64(median(allocs[0]))/pairs, "allocs-without")
	b.ReportMetric(float64(median(allocs[2]))/pairs, "allocs-with")
	if n := observer.events.Load(); n < uint64(round*2*pairs) {
		b.Errorf("%d events", n)
	}
}

func median[T float64 | uint64](of []T) T {
	slices.Sort(of)
	return of[len(of)/2]
}
