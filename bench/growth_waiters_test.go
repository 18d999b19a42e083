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

// waiting is a row of BenchmarkGrowthWaiters: clients that have so many callers together, who wait for so many
// names, with a NodeTimeout or its default.
type waiting struct {
	clients, callers, names int
	timeout                 time.Duration
}

func (w waiting) String() string {
	row := fmt.Sprintf("%s, %s, %s", count(w.callers, "caller"), count(w.clients, "client"), count(w.names, "name"))
	if w.timeout > 0 {
		row += fmt.Sprintf(", NodeTimeout %v", w.timeout)
	}
	return row
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// BenchmarkGrowthWaiters is what callers cost who wait, and what it takes to serve all of them when the
// locks are released: each unlocks at once.
func BenchmarkGrowthWaiters(b *testing.B) {
	most, clients := shortened(*growthWaiters, 10), shortened(*growthClients, 10)
	var rows []waiting
	for _, n := range sizes(min(most, 1000), most) {
		// All names are released at once: with the default, steps that come to more than that are given up and sent again.
		if n <= 10_000 {
			rows = append(rows, waiting{1, n, max(1, n/10), 0})
		}
		rows = append(rows, waiting{1, n, max(1, n/10), time.Second})
	}
	for _, n := range sizes(min(most, 100), most) {
		rows = append(rows, waiting{1, n, 1, 0})
	}
	rows = append(rows, waiting{max(1, clients/10), most, 1, 0})
	for _, n := range sizes(10, clients) {
		rows = append(rows, waiting{n, n, 1, 0})
	}
	g := newGrowth(b, growthDeployed)
	for b.Loop() {
		for _, w := range rows {
			g.waiting(w)
		}
	}
	b.ReportMetric(0, "ns/op")
	g.write(b)
}

func (g *growth) waiting(w waiting) {
	row, names := w.String(), make([]string, w.names)
	for i := range names {
		names[i] = fmt.Sprintf("waiting-%d", i)
	}
	held := make([]*redlatch.Lock, len(names))
	defer runtime.KeepAlive(names) // they are there before and after
	g.flush()
	goOnce(w.callers) // what the runtime keeps of goroutines that have ended is no client's
	before := g.usage()
	config := redlatch.Config{NodeTimeout: w.timeout}
	holder := g.open(g.on, config)
	defer holder.Close()
	atOnce(64, len(names), func(i int) {
		var err error
		if held[i], err = holder.Lock(g.b.Context(), names[i], redlatch.WithTTL(30*time.Second)); err != nil {
			g.b.Error(err)
		}
	})
	if g.b.Failed() {
		return
	}
	clients := g.openMany(w.clients, config)
	opened := g.usage()

	var queued, failed atomic.Int64
	var callers sync.WaitGroup
	for i := range w.callers {
		callers.Go(func() {
			queued.Add(1)
			lock, err := clients[i%len(clients)].Lock(g.b.Context(), names[i/len(clients)%len(names)])
			if err == nil {
				err = lock.Unlock(g.b.Context())
			}
			if err != nil {
				failed.Add(1)
			}
		})
	}
	g.awaitQuiet(func() bool { return queued.Load() == int64(w.callers) })
	began := g.usage()
	time.Sleep(16 * sliceLength())
	after := g.usage()
	g.add(row, "client's memory, B/caller", float64(began.memory-opened.memory)/float64(w.callers))
	g.add(row, "servers' memory, kB", float64(began.beside()-opened.beside())/1000)
	g.rested(row, began, after)

	start := g.usage()
	atOnce(64, len(held), func(i int) { held[i].Unlock(context.WithoutCancel(g.b.Context())) })
	callers.Wait()
	end := g.usage()
	served := end.first.when.Sub(start.last.when)
	g.add(row, "seconds to serve all", served.Seconds())
	g.add(row, "locks/s", float64(w.callers)/served.Seconds())
	g.spent(row, start, end, w.callers)
	g.add(row, "failed", float64(failed.Load()))
	closeAll(clients)
	holder.Close()
	g.left(row, before)
}

// openMany connects n clients.
func (g *growth) openMany(n int, config redlatch.Config) []*redlatch.Client {
	g.b.Helper()
	config.NoQuarantine = true
	clients := make([]*redlatch.Client, n)
	atOnce(16, n, func(i int) {
		l, err := openRedlatchWith(config, addresses(g.on))
		if err != nil {
			g.b.Error(err)
			return
		}
		clients[i] = l.(*redlatchLocker).client
	})
	if g.b.Failed() {
		g.b.FailNow()
	}
	return clients
}

func closeAll(clients []*redlatch.Client) {
	atOnce(16, len(clients), func(i int) { clients[i].Close() })
}

// goOnce has n goroutines at once, that do nothing.
func goOnce(n int) {
	var all sync.WaitGroup
	end := make(chan struct{})
	for range n {
		all.Go(func() { <-end })
	}
	close(end)
	all.Wait()
}

// awaitQuiet returns when begun is true and the servers then have the same keys for half a second.
func (g *growth) awaitQuiet(begun func() bool) {
	g.b.Helper()
	for keys, since := int64(-1), time.Now(); ; time.Sleep(100 * time.Millisecond) {
		now := g.keys()
		if now != keys || !begun() {
			keys, since = now, time.Now()
		} else if time.Since(since) > 500*time.Millisecond {
			return
		}
	}
}

// BenchmarkGrowthClients is what clients cost that share a set of nodes: to open, at rest, when each locks
// a name of its own, all at once, over and over, and to close.
func BenchmarkGrowthClients(b *testing.B) {
	g := newGrowth(b, growthDeployed)
	for b.Loop() {
		for _, n := range sizes(10, shortened(*growthClients, 10)) {
			g.clients(n)
		}
	}
	b.ReportMetric(0, "ns/op")
	g.write(b)
}

// lockers are clients of which each caller has its own.
type lockers []*redlatch.Client

func (l lockers) pair(ctx context.Context, name string) error {
	var i int
	if _, err := fmt.Sscanf(name, "bench/%d", &i); err != nil {
		return err
	}
	return (&redlatchLocker{l[i]}).pair(ctx, name)
}

func (l lockers) close() { closeAll(l) }

func (g *growth) clients(n int) {
	row := fmt.Sprintf("%d clients", n)
	g.flush()
	before := g.usage()
	start := time.Now()
	clients := g.openMany(n, redlatch.Config{})
	g.add(row, "seconds to open", time.Since(start).Seconds())
	play(lockers(clients), n, sliceLength()/5) // each opens its direct connections
	opened := g.usage()
	g.add(row, "client's memory, kB each", float64(opened.memory-before.memory)/1000/float64(n))
	g.add(row, "goroutines each", float64(opened.goroutines-before.goroutines)/float64(n))
	g.add(row, "connections each", float64(opened.connections-before.connections)/float64(n))
	g.add(row, "memory of a server, kB each", float64(opened.serverMemory-before.serverMemory)/1000/float64(n*len(g.on)))

	time.Sleep(16 * sliceLength())
	g.rested(row, opened, g.usage())

	began := g.usage()
	s := g.played(row, lockers(clients), n, 8*sliceLength())
	g.spent(row, began, g.usage(), s.pairs)

	start = time.Now()
	closeAll(clients)
	g.add(row, "seconds to close", time.Since(start).Seconds())
	g.left(row, before)
}
