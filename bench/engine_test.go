package bench

import (
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/zookeeper"
)

// engines are the ways to keep locks, each beside the lock that its own library has, if any. The
// costs of all are ratios to redlock's, by its place.
var engines = []engine{
	{name: "one Redis", open: openRedlatchOn(1)},
	{name: "Redlock of three", open: openRedlatchOn(3)},
	{name: "Redlock of three, appendfsync always", open: openRedlatchOnDisk},
	{name: "ZooKeeper", open: openRedlatchZooKeeper},
	{name: "etcd", open: openRedlatchEtcd},
	{name: "go-zookeeper's Lock", open: openRecipe, redlatch: "ZooKeeper"},
	{name: "etcd's concurrency.Mutex", open: openMutex, redlatch: "etcd"},
}

// redlock is what the others are divided by.
const redlock = "Redlock of three"

type engine struct {
	name string
	open func(on *ensembles) (locker, error)
	// redlatch is the engine on which redlatch is compared with this one.
	redlatch string
}

// ensembles are the servers of all engines, which write to the disk as in production where they do.
type ensembles struct {
	memory, disk []*redistest.Server
	zookeeper    []string
	etcd         []string
}

func newEnsembles(b *testing.B) *ensembles {
	b.Helper()
	for _, missing := range []string{ensembletest.ZooKeeperMissing(), ensembletest.EtcdMissing()} {
		if missing != "" {
			b.Skip(missing)
		}
	}
	on := &ensembles{memory: servers(b, 3)}
	for range 3 {
		on.disk = append(on.disk, redistest.New(b, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}))
	}
	on.zookeeper = ensembletest.NewZooKeeper(b, ensembletest.Options{
		Folder: b.TempDir(), Direct: true, Settings: []string{"forceSync=yes", "maxClientCnxns=0"},
	}).Addrs()
	on.etcd = ensembletest.NewEtcd(b, ensembletest.Options{Folder: b.TempDir(), Direct: true}).Addrs()
	return on
}

func openRedlatchOn(nodes int) func(on *ensembles) (locker, error) {
	return func(on *ensembles) (locker, error) { return openRedlatch(false)(addresses(on.memory[:nodes])) }
}

func openRedlatchOnDisk(on *ensembles) (locker, error) {
	return openRedlatchWith(redlatch.Config{Durable: true, Deployment: "bench-disk"}, addresses(on.disk))
}

func openRedlatchZooKeeper(on *ensembles) (locker, error) {
	client, err := zookeeper.Open(redlatch.Config{}, on.zookeeper...)
	if err != nil {
		return nil, err
	}
	return &redlatchLocker{client}, nil
}

func openRedlatchEtcd(on *ensembles) (locker, error) {
	client, err := etcd.OpenWith(redlatch.Config{}, etcd.Cluster{Endpoints: on.etcd})
	if err != nil {
		return nil, err
	}
	return &redlatchLocker{client}, nil
}

// openAll connects n clients of each engine.
func openAll(b *testing.B, on *ensembles, n int) (all []*rivals) {
	b.Helper()
	for _, e := range engines {
		c := &rivals{name: e.name}
		for range n {
			l, err := e.open(on)
			if err != nil {
				b.Fatalf("%s: %v", e.name, err)
			}
			b.Cleanup(l.close)
			c.clients = append(c.clients, l.(waiter))
		}
		all = append(all, c)
	}
	return all
}

// cost is what a lock or a hand-off took in a round.
type cost struct {
	title string
	// measure is one round of one engine's clients.
	measure func(c *rivals) (time.Duration, error)
	clients int
}

var costs = []cost{
	{"lock and unlock, 1 caller", pairTime, 1},
	{"64 callers of one client, each lock", contended(64), 1},
	{"hand-off to 1 waiter", handOffTime, 2},
	{"64 clients that wait, each lock", contended(1), 64},
}

// BenchmarkEngines is what a lock costs by what keeps it, beside the locks of the engines' own
// libraries on the same servers: all in each round, and none always after the same one.
func BenchmarkEngines(b *testing.B) {
	on := newEnsembles(b)
	for _, cost := range costs {
		b.Run(cost.title, func(b *testing.B) { compareEngines(b, on, cost) })
	}
}

func compareEngines(b *testing.B, on *ensembles, cost cost) {
	all := openAll(b, on, cost.clients)
	took := make([][]time.Duration, len(all)) // by engine and round
	for _, c := range all {                   // connections, pools and script caches are filled before it counts
		for _, client := range c.clients {
			if err := client.pair(b.Context(), "first"); err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
		}
	}
	for round := 0; b.Loop(); round++ {
		for i := range all {
			k := (i + round) % len(all)
			d, err := cost.measure(all[k])
			if err != nil {
				b.Fatalf("%s: %v", all[k].name, err)
			}
			took[k] = append(took[k], d)
		}
	}
	b.ReportMetric(0, "ns/op") // a round is as long as it was made
	writeEngines(os.Stdout, cost.title, took)
	recordEngines(b, took)
	var toRedlock, beside []float64
	for k, e := range engines {
		toRedlock = append(toRedlock, ratio(took[k], took[engineOf(redlock)]))
		if e.redlatch != "" {
			beside = append(beside, ratio(took[engineOf(e.redlatch)], took[k]))
			b.ReportMetric(beside[len(beside)-1], "x-"+e.redlatch+"-library")
		}
	}
	if *writeCosts {
		if err := writeCost(cost.title, append(toRedlock, beside...)); err != nil {
			b.Fatal(err)
		}
	}
}

func engineOf(name string) int {
	return slices.IndexFunc(engines, func(e engine) bool { return e.name == name })
}

// ratios are those of each round.
func ratios(took, other []time.Duration) []float64 {
	values := make([]float64, len(took))
	for i := range took {
		values[i] = float64(took[i]) / float64(other[i])
	}
	return values
}

// ratio is the middle one over all rounds.
func ratio(took, other []time.Duration) float64 { return middle(ratios(took, other)) }

// recordEngines notes all rounds as figures of b.
func recordEngines(b *testing.B, took [][]time.Duration) {
	b.Helper()
	for k, e := range engines {
		each := make([]float64, len(took[k]))
		for i, d := range took[k] {
			each[i] = micro(d)
		}
		record(b, e.name, "µs", each)
		record(b, e.name, "x Redlock", ratios(took[k], took[engineOf(redlock)]))
	}
}

func writeEngines(to io.Writer, title string, took [][]time.Duration) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s, %d rounds\tµs\tto %s\tredlatch to it\t\n", title, len(took[0]), redlock)
	for k, e := range engines {
		beside := ""
		if e.redlatch != "" {
			beside = fmt.Sprintf("%.2f", ratio(took[engineOf(e.redlatch)], took[k]))
		}
		values := make([]float64, len(took[k]))
		for i, d := range took[k] {
			values[i] = micro(d)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%s\t\n", e.name, middle(values), ratio(took[k], took[engineOf(redlock)]), beside)
	}
	w.Flush()
}

// pairTime is the median of a slice.
func pairTime(c *rivals) (time.Duration, error) {
	s := play(c.clients[0], 1, sliceLength())
	if s.failed > 0 || s.pairs == 0 {
		return 0, fmt.Errorf("%d locks, %d failed: %w", s.pairs, s.failed, s.err)
	}
	return s.quantile(.5), nil
}

// contended is the time for each lock, where all callers of all clients want one name.
func contended(callers int) func(c *rivals) (time.Duration, error) {
	return func(c *rivals) (time.Duration, error) {
		j, err := c.played(nil, callers, "contended/"+c.name)
		if err != nil {
			return 0, err
		}
		if j.failed > 0 {
			return 0, j.err
		}
		return time.Duration(float64(time.Second) / j.rate()), nil
	}
}

// settled is after how long a client that waits is in the queue and is told of changes: servers of
// etcd look ten times a second after those who have asked for what has already happened.
const settled = 15 * idle

// handOffTime is the median of some.
func handOffTime(c *rivals) (time.Duration, error) {
	took := make([]time.Duration, handOffsEach/2)
	if testing.Short() {
		took = took[:2]
	}
	for i := range took {
		var err error
		if took[i], err = c.handOff("handoff/"+c.name, settled); err != nil {
			return 0, err
		}
	}
	return quantileOf(took, .5), nil
}
