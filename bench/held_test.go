package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// held is a case of BenchmarkHeld.
type held struct {
	nodes, locks int
	// callers lock and unlock as fast as they can meanwhile.
	callers int
	// hung: the last node hangs.
	hung bool
}

func (h held) String() string {
	name := fmt.Sprintf("nodes=%d/locks=%d", h.nodes, h.locks)
	if h.callers > 0 {
		name += fmt.Sprintf("/callers=%d", h.callers)
	}
	if h.hung {
		name += "/hung"
	}
	return name
}

// BenchmarkHeld is what locks cost that are held and renewed, with a TTL of 30 s: the part of one
// processor that this process takes, that of all servers together, the heap for each lock, and how
// many were lost. A round lasts for more than 40 s.
func BenchmarkHeld(b *testing.B) {
	cases := []held{
		{nodes: 1, locks: 100}, {nodes: 3, locks: 100}, {nodes: 3, locks: 2000, callers: 64}, {nodes: 3, locks: 2000, hung: true},
	}
	if !testing.Short() {
		for _, locks := range []int{2000, 10_000, 50_000, 100_000} {
			cases = append(cases, held{nodes: 1, locks: locks}, held{nodes: 3, locks: locks})
		}
		cases = append(cases, held{nodes: 3, locks: 100_000, callers: 64}, held{nodes: 3, locks: 100_000, hung: true})
	}
	for _, h := range cases {
		b.Run(h.String(), func(b *testing.B) {
			var g grid
			for b.Loop() {
				h.run(b, &g)
			}
			g.write(b)
		})
	}
}

func (h held) run(b *testing.B, g *grid) {
	on := servers(b, h.nodes)
	l, err := openRedlatchWith(redlatch.Config{TTL: 30 * time.Second, NoQuarantine: true, Deployment: fmt.Sprintf("held-%d", h.nodes)}, addresses(on))
	if err != nil {
		b.Fatal(err)
	}
	defer l.close()
	client := l.(*redlatchLocker).client
	locks, names := make([]*redlatch.Lock, h.locks), make([]string, h.locks)
	for i := range names {
		names[i] = fmt.Sprintf("held-%d", i)
	}
	heap := heapInUse()
	start := time.Now()
	atOnce(64, h.locks, func(i int) {
		var err error
		if locks[i], err = client.Lock(b.Context(), names[i]); err != nil {
			b.Error(err)
		}
	})
	if b.Failed() {
		return
	}
	b.ReportMetric(time.Since(start).Seconds(), "taking-s")
	perLock := float64(heapInUse()-heap) / float64(h.locks)
	b.ReportMetric(perLock, "B/lock")
	up := on
	if h.hung {
		last := on[len(on)-1]
		up = on[:len(on)-1]
		if err := last.Pause(); err != nil {
			b.Fatal(err)
		}
		defer last.Resume()
	}
	meanwhile := lockMeanwhile(b.Context(), l, h.callers)
	length := 40 * time.Second // in which each lock is renewed at least three times
	if testing.Short() {
		length = time.Second
	}
	time.Sleep(length / 20)
	before, err := workOf(up)
	if err != nil {
		b.Fatal(err)
	}
	cpu, start := cpuTime(), time.Now()
	time.Sleep(length)
	cpu, lasted := cpuTime()-cpu, time.Since(start)
	after, err := workOf(up)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(meanwhile())/lasted.Seconds(), "others/s")
	lost := 0
	for _, l := range locks {
		if l.Err() != nil {
			lost++
		}
	}
	ours, all := 100*cpu.Seconds()/lasted.Seconds(), 100*(after.cpu-before.cpu).Seconds()/lasted.Seconds()
	b.ReportMetric(ours, "%client")
	b.ReportMetric(all, "%servers")
	b.ReportMetric(float64(lost), "lost")
	g.add("redlatch", "client, % of a processor", ours)
	g.add("redlatch", "servers, % of a processor", all)
	g.add("redlatch", "client's memory, B/lock", perLock)
	g.add("redlatch", "lost", float64(lost))
	b.ReportMetric(0, "ns/op")
	atOnce(64, h.locks, func(i int) { locks[i].Unlock(context.WithoutCancel(b.Context())) })
}

// lockMeanwhile has callers lock and unlock, each its own name, until end is called, which says how often
// they did.
func lockMeanwhile(ctx context.Context, l locker, callers int) (end func() int64) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var pairs atomic.Int64
	for i := range callers {
		group.Go(func() {
			name := fmt.Sprintf("other-%d", i)
			for ctx.Err() == nil {
				if l.pair(ctx, name) == nil {
					pairs.Add(1)
				}
			}
		})
	}
	return func() int64 {
		cancel()
		group.Wait()
		return pairs.Load()
	}
}

// atOnce calls f with 0 to n-1, so many at a time.
func atOnce(callers, n int, f func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	group.Wait()
}

func heapInUse() int64 {
	for range 2 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
