//go:build linux

package torture

import (
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
)

// Topology is how the servers relate to each other.
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

// Engines has the topologies of the engines beside Redis.
var Engines = []Topology{Zookeeper, Etcd}

// ensemble reports whether the node is an ensemble of another engine than Redis.
func (t Topology) ensemble() bool { return slices.Contains(Engines, t) }

// flag returns the name of the option that chooses the topology.
func (t Topology) flag() string {
	if t.ensemble() {
		return "engine"
	}
	return "topology"
}

// Topologies has the topologies of Redis.
var Topologies = []Topology{Single, Redlock, Sentinel, Cluster}

// faults returns the kinds that a topology has, in the order in which messages list them.
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

// composed reports whether there is only one node and several servers make it up.
func (t Topology) composed() bool { return t == Sentinel || t == Cluster || t.ensemble() }

// alone reports whether there is only one node. While it is out, nobody can acquire a lock.
func (t Topology) alone() bool { return t != Redlock }

// parts returns into how many parts the names are divided: one for each master of a Cluster, else only
// one.
func (t Topology) parts() int {
	if t == Cluster {
		return 3
	}
	return 1
}

// telling returns the kinds that show the control run's bug. The control run has them even if they
// were not chosen. For Redlock it returns none; there the plan only prefers split.
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

// bug describes the bug of the control run's lock.
func (t Topology) bug() string {
	switch t {
	case Single:
		return "a server that restarted votes at once"
	case Sentinel:
		return "any one Sentinel is believed, and a promoted master votes at once"
	case Cluster:
		return "each master votes at once for the slots it has"
	case Zookeeper, Etcd:
		return "its holder relies on it until it releases it, whatever the servers say"
	}
	return "one node less than a quorum is enough"
}

// DefaultTTL returns the TTL of the locks if none is given. It is short where many quarantines have to end
// during a run.
func (t Topology) DefaultTTL() time.Duration {
	if t == Single || t == Sentinel {
		return time.Second
	}
	return 2 * time.Second
}

// DefaultNames returns how many locks the workers contend for if nothing is given: two in each part of
// a Cluster, else three.
func (t Topology) DefaultNames() int { return max(3, 2*t.parts()) }

// shortestRun returns the shortest run that leaves time for quarantines after the faults.
func (t Topology) shortestRun() time.Duration {
	switch {
	case t.ensemble():
		return 50 * time.Second
	case t.alone():
		return 30 * time.Second
	}
	return 10 * time.Second
}

// shortestTTL returns the shortest TTL of the locks. It is longer for an ensemble, where it has to be longer
// than the second that it takes to depose a leader that hangs.
func (t Topology) shortestTTL() time.Duration {
	if t.ensemble() {
		return 2 * time.Second
	}
	return 500 * time.Millisecond
}

// shortestControl returns the shortest control run, which leaves time for some of the telling kinds.
func (t Topology) shortestControl() time.Duration {
	switch {
	case t == Cluster, t.ensemble():
		return 30 * time.Second
	case t.alone():
		return 20 * time.Second
	}
	return 10 * time.Second
}

// checkTopology checks the options that depend on the topology, and fills in their defaults.
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
