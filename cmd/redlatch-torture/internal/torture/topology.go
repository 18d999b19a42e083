//go:build linux

package torture

import (
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
)

// Topology is what the servers are to each other.
type Topology string

// The topologies. Sentinel and Cluster are one node each, of several servers.
const (
	Single   Topology = "single"   // one server
	Redlock  Topology = "redlock"  // independent masters, of which a majority decides
	Sentinel Topology = "sentinel" // a master with two replicas, which three Sentinels watch
	Cluster  Topology = "cluster"  // three masters with a replica each
)

// The engines beside Redis: one node each, of three servers.
const (
	Zookeeper = Topology(engine.Zookeeper)
	Etcd      = Topology(engine.Etcd)
)

// Engines lists these.
var Engines = []Topology{Zookeeper, Etcd}

// ensemble reports that the node is an ensemble of another engine than Redis.
func (t Topology) ensemble() bool { return slices.Contains(Engines, t) }

// flag is the option that chooses it.
func (t Topology) flag() string {
	if t.ensemble() {
		return "engine"
	}
	return "topology"
}

// Topologies lists those of Redis.
var Topologies = []Topology{Single, Redlock, Sentinel, Cluster}

// faults are the kinds that a topology has, in the order in which they are shown.
func (t Topology) faults() []kind {
	switch t {
	case Single:
		return slices.DeleteFunc(slices.Clone(independent), func(k kind) bool { return k == blackout || k == setAll })
	case Sentinel:
		return []kind{
			killNode, hangNode, failover, failback, lag, minority, killSentinel, hangSentinel, settings, flush, scripts, setOne,
			stop, crash, starve, stranger, neighbour,
		}
	case Cluster:
		return []kind{
			killNode, wipeNode, hangNode, failover, takeover, moveSlot, fixSlots, settings, flush, scripts,
			stop, crash, starve, stranger, neighbour,
		}
	case Zookeeper, Etcd:
		return []kind{killNode, hangNode, killFollower, hangFollower, minority, restartAll, reset, lostReply, stop, crash, starve}
	}
	return independent
}

// composed reports that several servers make up the one node.
func (t Topology) composed() bool { return t == Sentinel || t == Cluster || t.ensemble() }

// alone reports that there is one node: while it is out, nobody can lock.
func (t Topology) alone() bool { return t != Redlock }

// parts is how many masters share the names of one node.
func (t Topology) parts() int {
	if t == Cluster {
		return 3
	}
	return 1
}

// telling are the kinds that show the control run's bug. The control run suffers them whatever
// was chosen.
func (t Topology) telling() []kind {
	switch t {
	case Single:
		return []kind{wipeNode}
	case Sentinel:
		return []kind{minority, lag}
	case Cluster:
		return []kind{fixSlots, wipeNode}
	case Zookeeper, Etcd:
		return []kind{minority}
	}
	return nil
}

// bug is that of the control run's lock.
func (t Topology) bug() string {
	switch t {
	case Single:
		return "a server that restarted votes at once"
	case Sentinel:
		return "any one Sentinel is believed, and a promoted master votes at once"
	case Cluster:
		return "each master votes at once for the slots it has"
	case Zookeeper, Etcd:
		return "its holder relies on it until it lets it go, whatever the servers say"
	}
	return "a node short of a quorum"
}

// DefaultTTL is short where a run has to see the ends of many quarantines.
func (t Topology) DefaultTTL() time.Duration {
	if t == Single || t == Sentinel {
		return time.Second
	}
	return 2 * time.Second
}

// DefaultNames is how many locks the workers contend for: two at each master of a
// Cluster.
func (t Topology) DefaultNames() int { return max(3, 2*t.parts()) }

// shortestRun leaves time for quarantines after the faults.
func (t Topology) shortestRun() time.Duration {
	switch {
	case t.ensemble():
		return 50 * time.Second
	case t.alone():
		return 30 * time.Second
	}
	return 10 * time.Second
}

// shortestTTL is longer for an ensemble: a leader that stands still is to be deposed before sessions
// could end by its word, which takes a second.
func (t Topology) shortestTTL() time.Duration {
	if t.ensemble() {
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// shortestControl leaves time for some of the telling kinds.
func (t Topology) shortestControl() time.Duration {
	switch {
	case t == Cluster, t.ensemble():
		return 30 * time.Second
	case t.alone():
		return 20 * time.Second
	}
	return 10 * time.Second
}

func (o *Options) checkTopology() error {
	if o.Topology == "" {
		o.Topology = Redlock
	}
	switch {
	case !slices.Contains(Topologies, o.Topology) && !o.Topology.ensemble():
		return invalid("--topology is %q: use %s", o.Topology, listTopologies())
	case len(o.Yours) > 0 && o.Topology != Redlock:
		return invalid("--%s %s starts servers of its own, and --nodes names yours: leave one of them out", o.Topology.flag(), o.Topology)
	case len(o.Yours) > 0:
		o.Nodes = len(o.Yours)
	case o.Topology.alone() && o.Nodes != 0:
		return invalid("--nodes-count is %d, but --topology %s is one node: leave --nodes-count out, or use --topology redlock", o.Nodes, o.Topology)
	case o.Topology.alone():
		o.Nodes = 1
	}
	if o.TTL == 0 {
		o.TTL = o.Topology.DefaultTTL()
	}
	if o.Names == 0 {
		o.Names = o.Topology.DefaultNames()
	}
	return nil
}

func listTopologies() string {
	names := make([]string, len(Topologies))
	for i, t := range Topologies {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}
