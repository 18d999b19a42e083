package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// sample is what one contestant did in one slice.
type sample struct {
	pairs  int // locked and unlocked
	failed int
	err    error // of one that failed

	wall, cpu     time.Duration // of this process
	allocs, bytes uint64
	latency       []time.Duration // sorted, one a pair

	serverCPU time.Duration // of all servers
	commands  int           // executed by all servers, those within scripts too
}

func (s *sample) rate() float64 { return float64(s.pairs) / s.wall.Seconds() }

// per is an amount for each pair.
func (s *sample) per(amount float64) float64 { return amount / float64(max(s.pairs, 1)) }

func (s *sample) quantile(q float64) time.Duration {
	if len(s.latency) == 0 {
		return 0
	}
	return s.latency[int(q*float64(len(s.latency)-1))]
}

// caller is one goroutine's part of a sample.
type caller struct {
	latency []time.Duration
	failed  int
	err     error
}

// patience is how long after a slice a caller that still waits is told to stop.
const patience = 2 * time.Second

// play has callers lock and unlock for about d, each a name of its own.
func play(l locker, callers int, d time.Duration) *sample {
	part := make([]caller, callers)
	for i := range part {
		part[i].latency = make([]time.Duration, 0, int(d/time.Microsecond/20)/callers)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d+patience)
	defer cancel()
	// Nobody pays for another's garbage.
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	var all sync.WaitGroup
	for i := range part {
		all.Go(func() { part[i].play(ctx, l, fmt.Sprintf("bench/%d", i), start.Add(d)) })
	}
	all.Wait()
	s := &sample{wall: time.Since(start), cpu: cpuTime() - cpu}
	runtime.ReadMemStats(&after)
	s.allocs, s.bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	for _, p := range part {
		s.latency = append(s.latency, p.latency...)
		s.failed += p.failed
		if p.err != nil {
			s.err = p.err
		}
	}
	s.pairs = len(s.latency)
	slices.Sort(s.latency)
	return s
}

func (c *caller) play(ctx context.Context, l locker, name string, end time.Time) {
	for now := time.Now(); now.Before(end); {
		err := l.pair(ctx, name)
		then := time.Now()
		if err != nil {
			c.failed++
			c.err = err
		} else {
			c.latency = append(c.latency, then.Sub(now))
		}
		now = then
	}
}

// cpuTime is what this process has used so far, in and for it.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it fails for bad arguments only
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
