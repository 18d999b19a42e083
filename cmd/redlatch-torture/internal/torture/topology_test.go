//go:build linux

package torture

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestTopologyOptions(t *testing.T) {
	good := func(topology Topology) Options {
		return Options{Topology: topology, For: time.Minute, Workers: 4, Names: 2, Faults: []string{"stop"}}
	}
	for words, o := range map[string]Options{
		`--topology is "ring": use single, redlock, sentinel, cluster`: good("ring"),
		"--topology sentinel starts servers of its own, and --nodes": func() Options {
			o := good(Sentinel)
			o.Yours = []string{"redis://a:1"}
			return o
		}(),
		"--nodes-count is 5, but --topology cluster": func() Options { o := good(Cluster); o.Nodes = 5; return o }(),
		"--for is 20s: use 30s or more":              func() Options { o := good(Single); o.For = 20 * time.Second; return o }(),
		"--faults names split, which --topology cluster does not have: choose from kill,": func() Options {
			o := good(Cluster)
			o.Faults = []string{"stop", "split"}
			return o
		}(),
		"--faults names minority, which --topology redlock does not have": func() Options {
			o := good(Redlock)
			o.Nodes, o.Faults = 3, []string{"minority"}
			return o
		}(),
		"--faults names wipe, which --engine etcd does not have: choose from kill,": func() Options {
			o := good(Etcd)
			o.Faults = []string{"wipe"}
			return o
		}(),
		"--ttl is 1s: use 2s to": func() Options { o := good(Zookeeper); o.TTL = time.Second; return o }(),
		"--engine zookeeper starts servers of its own, and --nodes": func() Options {
			o := good(Zookeeper)
			o.Yours = []string{"redis://a:1"}
			return o
		}(),
	} {
		wantInvalid(t, o.complete(), words)
	}
	o := good("")
	o.Nodes = 3
	if err := o.complete(); err != nil || o.Topology != Redlock || o.TTL != 2*time.Second {
		t.Errorf("%s, TTL %v, %v", o.Topology, o.TTL, err)
	}
	for _, topology := range []Topology{Single, Sentinel, Cluster, Zookeeper, Etcd} {
		o := good(topology)
		if err := o.complete(); err != nil || o.Nodes != 1 || o.TTL != topology.DefaultTTL() {
			t.Errorf("%s: %d nodes, TTL %v, %v", topology, o.Nodes, o.TTL, err)
		}
	}
}

// Each name of a Cluster has a part, and the names are spread over all parts.
func TestNamesOfParts(t *testing.T) {
	o := Options{Topology: Cluster, Names: 7, prefix: "torture"}
	seen := map[int]int{}
	for _, part := range o.parts() {
		seen[part]++
	}
	if len(seen) != 3 || seen[1] != 3+1 || seen[3] != 2+1 {
		t.Errorf("names by part: %v", seen)
	}
}

// A run of each topology violates nothing and has every kind that was chosen. The control run shows its
// bug, except for a Cluster, where that may take longer.
func TestRunOfTopology(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	if len(redistest.Flavors()) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	t.Setenv("TMPDIR", t.TempDir())
	for topology, faults := range map[Topology]string{
		Single:   "kill,wipe,hang,partition,lost-reply,scripts,admit,stop,crash,stranger,neighbour",
		Sentinel: "failover,lag,sentinel-hang,scripts,stop,crash,stranger",
		Cluster:  "failover,takeover,kill,wipe,hang,move,fix,settings,flush,scripts,stop,crash,stranger,neighbour",
	} {
		t.Run(string(topology), func(t *testing.T) {
			t.Parallel()
			// On a busy machine a control run may show nothing, and servers that answer late may give no lock for some
			// seconds, but not each time.
			const tries = 4
			for try := uint64(1); ; try++ {
				r, err := Run(t.Context(), Options{
					Topology: topology, For: 35 * time.Second, Seed: try, Workers: 4, Names: 3, TTL: time.Second, Faults: strings.Split(faults, ","), Out: io.Discard,
				})
				if err != nil {
					t.Fatal(err)
				}
				// In so short a time a control run of a Cluster may show nothing.
				if r.OK() || topology == Cluster && len(r.Violations()) == 0 {
					return
				}
				late := len(r.Violations()) == 1 && len(r.Findings.Refused) > 0
				if len(r.Violations()) > 0 && !late || try == tries {
					t.Fatalf("%s", r.Text())
				}
			}
		})
	}
}

// A lan knows from which host a process connects. It holds what goes between two hosts, and cuts their
// connections.
func TestLAN(t *testing.T) {
	s := redistest.New(t)
	l := newLAN()
	defer l.close()
	address, open, err := l.front(1)
	if err != nil {
		t.Fatal(err)
	}
	open(s.Addr())
	l.settleServer(s.PID, 1)
	replica := redistest.NewReplica(t, s, redistest.Options{ReplicaOf: s.Addr()})
	l.settleServer(replica.PID, 2)
	l.hold([]way{{1, 2}}, true)
	if _, err := replica.Do("REPLICAOF", "127.0.0.1", strings.TrimPrefix(address, "127.0.0.1:")); err != nil {
		t.Fatal(err)
	}
	// This process is outside, where nothing is held.
	conn, err := redistest.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if reply, err := conn.Do("SET", "k", "v"); err != nil || reply != "OK" {
		t.Fatalf("%v, %v", reply, err)
	}
	info, err := replica.Info("replication")
	if err != nil || info["master_link_status"] != "down" {
		t.Errorf("the replica's link is %s, %v", info["master_link_status"], err)
	}
	l.hold([]way{{1, 2}}, false)
	if err := replica.AwaitLink(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reply, err := replica.Do("GET", "k"); err != nil || reply != "v" {
		t.Errorf("%v, %v", reply, err)
	}
	l.cut([]way{{2, 1}})
	if _, err := conn.Do("PING"); err != nil {
		t.Errorf("another's connections were cut: %v", err)
	}
	l.cut([]way{{outside, 1}})
	if _, err := conn.Do("PING"); err == nil {
		t.Error("a connection that was cut is there")
	}
	if conn, err = redistest.Dial(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l.close()
	if _, err := conn.Do("PING"); err == nil {
		t.Error("a connection outlives the lan")
	}
}
