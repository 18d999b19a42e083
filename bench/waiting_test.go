package bench

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// waitingCallers is how many callers of one process wait for one lock.
const waitingCallers = 5000

// BenchmarkWaitingCallers is what a caller who waits costs: memory beyond that of
// a goroutine that waits for a channel, and commands a second of all together.
func BenchmarkWaitingCallers(b *testing.B) {
	on := servers(b, 1)
	holder, err := openRedlatch(false)(addresses(on))
	if err != nil {
		b.Fatal(err)
	}
	defer holder.close()
	l, err := openRedlatch(false)(addresses(on))
	if err != nil {
		b.Fatal(err)
	}
	defer l.close()
	var bytes, bare, commands, stacks float64
	rounds := 0
	for b.Loop() {
		rounds++
		unlock, err := holder.(waiter).lock(b.Context(), "waiting")
		if err != nil {
			b.Fatal(err)
		}
		stop := make(chan struct{})
		heap, stack := memoryOf(func(ctx context.Context, entered *sync.WaitGroup) {
			entered.Done()
			select {
			case <-stop:
			case <-ctx.Done():
			}
		}, nil)
		close(stop)
		bare += heap + stack

		heap, stack = memoryOf(func(ctx context.Context, entered *sync.WaitGroup) {
			entered.Done()
			unlock, err := l.(waiter).lock(ctx, "waiting")
			if err == nil {
				unlock(ctx)
			}
		}, func() {
			before, err := workOf(on)
			if err != nil {
				b.Error(err)
			}
			start := time.Now()
			time.Sleep(16 * sliceLength())
			after, err := workOf(on)
			if err != nil {
				b.Error(err)
			}
			sent := after.calls["evalsha"] + after.calls["eval"] - before.calls["evalsha"] - before.calls["eval"]
			commands += float64(sent) / time.Since(start).Seconds()
		})
		bytes += heap + stack
		stacks += stack
		if err := unlock(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	n := float64(rounds)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric((bytes-bare)/n/waitingCallers, "B/caller-beyond-goroutine")
	b.ReportMetric(stacks/n/waitingCallers, "stack-B/caller")
	b.ReportMetric(bare/n/waitingCallers, "B/bare-goroutine")
	b.ReportMetric(commands/n, "commands/s")
}

// memoryOf is the memory that waitingCallers goroutines that wait hold on to, in
// the heap and in stacks. meanwhile runs while they wait; then they are told to
// stop.
func memoryOf(wait func(ctx context.Context, entered *sync.WaitGroup), meanwhile func()) (heap, stack float64) {
	used := func() (heap, stack float64) {
		var m runtime.MemStats
		for range 3 { // finalizers, and stacks that shrink
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc), float64(m.StackInuse)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	heapBefore, stackBefore := used()
	var entered, group sync.WaitGroup
	entered.Add(waitingCallers)
	for range waitingCallers {
		group.Go(func() { wait(ctx, &entered) })
	}
	entered.Wait()
	time.Sleep(sliceLength())
	if meanwhile != nil {
		meanwhile()
	}
	heap, stack = used()
	cancel()
	group.Wait()
	return heap - heapBefore, stack - stackBefore
}
