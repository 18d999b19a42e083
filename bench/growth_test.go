package bench

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// How far the benchmarks of growth go: powers of ten up to there.
var (
	growthNames    = flag.Int("growth.names", 1_000_000, "names that are locked in turn; -short makes it a thousandth")
	growthWaiters  = flag.Int("growth.waiters", 10_000, "callers that wait for a tenth as many names, and for one; -short makes it a tenth")
	growthClients  = flag.Int("growth.clients", 1000, "clients of one set of nodes; -short makes it a tenth")
	growthNodes    = []int{1, 3, 5, 7, 9}
	growthDeployed = 3 // nodes, where their number is not what grows
)

// sizes are the powers of ten from least to most.
func sizes(least, most int) (all []int) {
	for n := least; n < most; n *= 10 {
		all = append(all, n)
	}
	return append(all, most)
}

func shortened(n, by int) int {
	if testing.Short() {
		return max(1, n/by)
	}
	return n
}

// usage is what this process, which is the client, and the servers have. What looking costs lies between
// first and last, so that it counts neither for what was before nor for what follows.
type usage struct {
	first, last moment
	memory      int64 // live heap and stacks
	goroutines  int
	// of all servers together
	serverMemory, clientBuffers, keys, expiring, connections int64
}

// beside is what the servers have beside the buffers of their clients' connections.
func (u usage) beside() int64 { return u.serverMemory - u.clientBuffers }

// moment is what has been used until then.
type moment struct {
	when    time.Time
	cpu     time.Duration
	servers work
}

func momentOf(on []*redistest.Server) (m moment, err error) {
	m.when, m.cpu = time.Now(), cpuTime()
	m.servers, err = workOf(on)
	return m, err
}

// usageOf collects garbage before it looks at memory.
func usageOf(on []*redistest.Server) (u usage, err error) {
	if u.first, err = momentOf(on); err != nil {
		return u, err
	}
	for range 3 { // finalizers, and stacks that shrink
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.memory, u.goroutines = int64(m.HeapAlloc+m.StackInuse), runtime.NumGoroutine()
	for _, s := range on {
		info, err := s.Info("memory", "clients", "keyspace")
		if err != nil {
			return u, err
		}
		for name, sum := range map[string]*int64{
			"used_memory": &u.serverMemory, "mem_clients_normal": &u.clientBuffers, "connected_clients": &u.connections,
		} {
			n, err := strconv.ParseInt(info[name], 10, 64)
			if err != nil {
				return u, fmt.Errorf("%s: %w", name, err)
			}
			*sum += n
		}
		if db, ok := info["db0"]; ok {
			var keys, expiring int64
			if _, err := fmt.Sscanf(db, "keys=%d,expires=%d", &keys, &expiring); err != nil {
				return u, fmt.Errorf("db0:%s: %w", db, err)
			}
			u.keys, u.expiring = u.keys+keys, u.expiring+expiring
		}
	}
	u.last, err = momentOf(on)
	return u, err
}

// growth measures what grows, on servers of its own.
type growth struct {
	b  *testing.B
	on []*redistest.Server
	grid
}

func newGrowth(b *testing.B, nodes int) *growth {
	b.Helper()
	return &growth{b: b, on: redistest.Nodes(b, nodes)}
}

func (g *growth) usage() usage {
	g.b.Helper()
	u, err := usageOf(g.on)
	if err != nil {
		g.b.Fatal(err)
	}
	return u
}

// flush deletes all keys, and ends what the servers do in the background.
func (g *growth) flush() {
	g.b.Helper()
	for _, s := range g.on {
		if _, err := s.Do("FLUSHALL", "SYNC"); err != nil {
			g.b.Fatal(err)
		}
	}
}

func (g *growth) open(on []*redistest.Server, config redlatch.Config) *redlatch.Client {
	g.b.Helper()
	config.NoQuarantine = true
	l, err := openRedlatchWith(config, addresses(on))
	if err != nil {
		g.b.Fatal(err)
	}
	return l.(*redlatchLocker).client
}

// spent notes what n locks have cost between two usages.
func (g *growth) spent(row string, before, after usage, n int) {
	from, to := before.last, after.first
	g.add(row, "client, µs/lock", micro(to.cpu-from.cpu)/float64(n))
	g.add(row, "servers, µs/lock", micro(to.servers.cpu-from.servers.cpu)/float64(n))
	g.add(row, "sent, commands/lock", float64(sentBetween(from, to))/float64(n))
	g.add(row, "executed, commands/lock", float64(to.servers.commands-from.servers.commands)/float64(n))
}

// rested notes what a second costs in which nobody locks.
func (g *growth) rested(row string, before, after usage) {
	from, to := before.last, after.first
	seconds := to.when.Sub(from.when).Seconds()
	g.add(row, "client, % of a processor", 100*(to.cpu-from.cpu).Seconds()/seconds)
	g.add(row, "servers, % of a processor", 100*(to.servers.cpu-from.servers.cpu).Seconds()/seconds)
	g.add(row, "sent, commands/s", float64(sentBetween(from, to))/seconds)
}

// sentBetween are the commands that clients have sent, without those of their scripts.
func sentBetween(from, to moment) (n int) {
	for _, command := range []string{"evalsha", "eval", "ping", "get", "client|tracking", "client|caching", "info", "subscribe"} {
		n += to.servers.calls[command] - from.servers.calls[command]
	}
	return n
}

// left notes what is there after the clients were closed, beyond what was there before they were opened.
func (g *growth) left(row string, before usage) {
	g.b.Helper()
	// What the last callers had still to send to nodes they did not wait for is sent, and connections' ends are heard of.
	after := g.usage()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && after.goroutines > before.goroutines; after = g.usage() {
		time.Sleep(50 * time.Millisecond)
	}
	g.add(row, "keys left", float64(after.keys-before.keys))
	g.add(row, "of these without a TTL", float64((after.keys-after.expiring)-(before.keys-before.expiring)))
	g.add(row, "goroutines left", float64(after.goroutines-before.goroutines))
	g.add(row, "client's memory left, kB", float64(after.memory-before.memory)/1000)
	g.add(row, "connections left", float64(after.connections-before.connections))
}

// BenchmarkGrowthNodes is what a lock costs by the number of nodes, for one caller and for 64 that lock a name each.
func BenchmarkGrowthNodes(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			g := newGrowth(b, slices.Max(growthNodes))
			for _, n := range growthNodes {
				g.rows = append(g.rows, count(n, "node"))
			}
			for round := 0; b.Loop(); round++ {
				for i := range growthNodes {
					g.nodes(growthNodes[(i+round)%len(growthNodes)], callers)
				}
			}
			b.ReportMetric(0, "ns/op")
			g.write(b)
		})
	}
}

// nodes is one round over n nodes.
func (g *growth) nodes(n, callers int) {
	row := count(n, "node")
	all := g.on
	g.on = all[:n]
	defer func() { g.on = all }()
	g.flush()
	before := g.usage()
	client := g.open(g.on, redlatch.Config{})
	defer client.Close()
	l := &redlatchLocker{client}
	play(l, callers, sliceLength()/5) // connections, pools and script caches are filled before it counts
	began := g.usage()
	s := g.played(row, l, callers, 2*sliceLength())
	after := g.usage()
	g.spent(row, began, after, s.pairs)
	g.add(row, "client's memory, kB", float64(after.memory-before.memory)/1000)
	g.add(row, "memory of a server, kB", float64(after.serverMemory-before.serverMemory)/1000/float64(n))
	client.Close()
	g.left(row, before)
}

// played has callers lock and unlock a name each, and notes how often.
func (g *growth) played(row string, l locker, callers int, d time.Duration) *sample {
	g.b.Helper()
	s := play(l, callers, d)
	if s.pairs == 0 {
		g.b.Fatalf("%s: %v", row, s.err)
	}
	g.add(row, "locks/s", s.rate())
	g.add(row, "median µs", micro(s.quantile(.5)))
	g.add(row, "failed", float64(s.failed))
	s.latency = nil // is no client's memory
	return s
}

// BenchmarkGrowthNames locks more and more names in turn, 64 at a time, each once.
func BenchmarkGrowthNames(b *testing.B) {
	g := newGrowth(b, growthDeployed)
	for b.Loop() {
		for _, n := range sizes(shortened(1000, 10), shortened(*growthNames, 1000)) {
			g.names(n)
		}
		g.forgotten()
	}
	b.ReportMetric(0, "ns/op")
	g.write(b)
}

// forget is a MaxTTL: what a node remembers of a lock, it remembers for this and 4 s.
const forget = 10 * time.Second

func (g *growth) names(n int) {
	row := fmt.Sprintf("%d names", n)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("names-%d", i)
	}
	g.flush()
	before := g.usage()
	client := g.open(g.on, redlatch.Config{MaxTTL: forget})
	defer client.Close()
	l := &redlatchLocker{client}
	play(l, 64, sliceLength()/5)
	began := g.usage()
	failed := g.everyName(l, names)
	after := g.usage()
	took := after.first.when.Sub(began.last.when)
	g.add(row, "seconds", took.Seconds())
	g.add(row, "locks/s", float64(n)/took.Seconds())
	g.spent(row, began, after, n)
	g.add(row, "failed", float64(failed))
	g.add(row, "client's memory, kB", float64(after.memory-before.memory)/1000)
	g.add(row, "memory of a server, kB", float64(after.beside()-began.beside())/1000/float64(len(g.on)))
	l.close()
	g.left(row, before)
	runtime.KeepAlive(names) // they are there before and after
}

// forgotten waits until the counters of the last row have ended, as they do by themselves.
func (g *growth) forgotten() {
	g.b.Helper()
	row, least := g.rows[len(g.rows)-1], g.keys()
	for since := time.Now(); time.Since(since) < forget+5*time.Second; time.Sleep(100 * time.Millisecond) {
		if now := g.keys(); now < least {
			least, since = now, time.Now()
		}
	}
	g.add(row, "keys a while later", float64(least))
	g.add(row, "memory of a server then, kB", float64(g.usage().beside())/1000/float64(len(g.on)))
}

// keys are those of all servers.
func (g *growth) keys() (all int64) {
	g.b.Helper()
	for _, s := range g.on {
		n, err := s.Do("DBSIZE")
		if err != nil {
			g.b.Fatal(err)
		}
		all += n.(int64)
	}
	return all
}

func (g *growth) everyName(l locker, names []string) (failed int) {
	var mu sync.Mutex // guards failed
	atOnce(64, len(names), func(i int) {
		if err := l.pair(g.b.Context(), names[i]); err != nil {
			mu.Lock()
			failed++
			mu.Unlock()
		}
	})
	return failed
}
