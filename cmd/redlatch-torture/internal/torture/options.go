//go:build linux

// Package torture is `redlatch-torture run`. It starts real servers and worker processes, has
// them suffer faults from a plan that a seed decides, and has package judge look for violations.
//
// # Who does what
//
// The torture starts servers, workers ([Work]), in front of each server a proxy
// for each side of the network, and the registers that the locks protect. The
// planner draws the faults, and the torturer carries them out. Workers and torturer
// write down what happens, and package judge reads that afterwards.
//
// # What a run proves
//
// A run without violations proves nothing by itself. So it fails if a kind of
// fault that was asked for did not happen, if the lock was hardly ever
// acquired, or if its control run shows no violation. The control run has the same sort of plan, with a
// lock that is broken on purpose.
package torture

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// WorkerCommand is the hidden command by which Run starts the workers. The program that calls Run must
// call Work for it.
const WorkerCommand = "torture-worker"

// Options say how to run.
type Options struct {
	// For is how long the run lasts: at least 10 s, 30 s with one node of Redis, or 50 s with
	// an ensemble. The control run takes further time.
	For time.Duration
	// Seed decides the plan.
	Seed uint64
	// Topology is how the servers relate to each other. Defaults to Redlock.
	Topology Topology
	// Nodes is the number of nodes, 3 to 15, or 0 if the topology is one node.
	// Workers is the number of worker processes, 2 to 64. Names is the number of locks, 1
	// to 64. It defaults to the topology's DefaultNames.
	Nodes, Workers, Names int
	// Primitive is what the workers take: mutex, sets, shared, permits or mixed. Defaults to mutex.
	Primitive string
	// TTL is that of the locks: 500 ms to 1 min, and at least 2 s with an ensemble. Defaults to the
	// topology's DefaultTTL.
	TTL time.Duration
	// Faults are the kinds of faults. Defaults to all kinds that are possible.
	Faults []string
	// Yours are the URLs of the user's nodes, if the run is on these. Only the workers and the network in
	// front of the nodes have faults then, and the torture removes its keys at the end.
	Yours []string
	// WorkerCommand is the workers' command line. Defaults to this program's own
	// workers.
	WorkerCommand []string
	// NoControl leaves out the control run. The report then says that the run proved nothing.
	NoControl bool
	// Keep is a directory for the workers' logs. Defaults to a temporary one, which is
	// removed.
	Keep string
	// Out gets the progress of the run, line by line.
	Out io.Writer

	prefix string // of all names of locks
	chosen []kind
	// primitives has what the workers choose from at random. It is empty if they take only locks of one
	// name.
	primitives []worker.Primitive
	left       string // which faults were left out and why, or ""
}

const (
	fewestNodes, mostNodes     = 3, 15
	fewestWorkers, mostWorkers = 2, 64
	mostNames                  = 64
	longestTTL                 = time.Minute
)

// complete checks the options and fills in the rest. Its errors wrap redlatch.ErrInvalid and
// name the setting.
func (o *Options) complete() error {
	if err := o.checkTopology(); err != nil {
		return err
	}
	switch least := o.Topology.shortestRun(); {
	case o.For < least:
		return invalid("--for is %v: use %v or more, or most faults have no time to happen", o.For, least)
	case !o.Topology.alone() && (o.Nodes < fewestNodes || o.Nodes > mostNodes):
		return invalid("there are %d nodes: use %d to %d; with fewer, none could be taken out", o.Nodes, fewestNodes, mostNodes)
	case o.Workers < fewestWorkers || o.Workers > mostWorkers:
		return invalid("--workers is %d: use %d to %d", o.Workers, fewestWorkers, mostWorkers)
	case o.Names < 1 || o.Names > mostNames:
		return invalid("--names is %d: use 1 to %d", o.Names, mostNames)
	case o.TTL < o.Topology.shortestTTL() || o.TTL > longestTTL:
		return invalid("--ttl is %v: use %v to %v", o.TTL, o.Topology.shortestTTL(), longestTTL)
	}
	for _, raw := range o.Yours {
		at, _, err := redisconn.Parse(raw)
		switch {
		case err != nil:
			return invalid("--nodes: %w", err)
		case at.Cluster || at.Master != "":
			return invalid("--nodes: %s: give one server, as redis://HOST:PORT; the torture's proxies lead to the address that they are given, and not to the masters behind it", redisconn.Redact(raw))
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "redis" || u.Port() == "" {
			return invalid("--nodes: %s: give redis://HOST:PORT; the torture's proxies have no certificates for rediss://, and cannot stand before a Unix socket", redisconn.Redact(raw))
		}
	}
	chosen, err := parseKinds(o.Faults, o.Topology)
	if err != nil {
		return err
	}
	if err := o.checkPrimitive(); err != nil {
		return err
	}
	o.prefix = "torture"
	if len(o.Yours) > 0 {
		o.prefix = "redlatch-torture-" + strconv.FormatUint(o.Seed, 36)
	}
	return o.choose(chosen)
}

// choose sets o.chosen to the kinds that were asked for, or to all if none was. A kind that is not
// possible here is an error if it was asked for. Otherwise it is left out, and o.left says why.
func (o *Options) choose(asked []kind) error {
	var noWires error
	if len(o.Yours) == 0 && !o.Topology.composed() && (len(asked) == 0 || slices.Contains(asked, namespace)) {
		noWires = wiresPossible()
	}
	_, noCompiler := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	impossible := func(k kind) string {
		switch {
		case len(o.Yours) > 0 && traits[k].server:
			return "the torture does nothing to your own nodes"
		case traits[k].ours && len(o.WorkerCommand) > 0:
			return "it concerns only Redlatch's own clients"
		case k == setAll && o.For < setAllFits:
			return fmt.Sprintf("it needs --for %v or more", setAllFits)
		case k == namespace && noWires != nil:
			return noWires.Error()
		case (k == clockStep || k == nudge) && noCompiler != nil:
			return "the shim that moves a server's clock needs a C compiler (remedy: apt-get install gcc libc6-dev, or name one in CC)"
		}
		return ""
	}
	var left []string
	for _, k := range o.Topology.faults() {
		if len(asked) > 0 && !slices.Contains(asked, k) {
			continue
		}
		why := impossible(k)
		switch {
		case why == "":
			o.chosen = append(o.chosen, k)
		case len(asked) > 0:
			return invalid("--faults names %s: %s", k, why)
		case len(o.Yours) == 0 && !traits[k].ours:
			left = append(left, fmt.Sprintf("%s (%s)", k, why))
		}
	}
	o.left = strings.Join(left, ", ")
	return nil
}

func (o *Options) kinds() []kind { return o.chosen }

// lockNames returns the names that the workers contend for.
func (o *Options) lockNames() []string {
	names := make([]string, o.Names)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%c%d", o.prefix, 'a'+i%26, i/26)
		if o.Names <= 26 {
			names[i] = fmt.Sprintf("%s:%c", o.prefix, 'a'+i)
		}
		if o.Topology == Cluster {
			names[i] = inPart(names[i], o.partOf(i))
		}
	}
	return names
}

// probeNames returns the names of the probe, one for each part of the node. It locks them to see whether a
// lock can be acquired.
func (o *Options) probeNames() []string {
	names := make([]string, o.Topology.parts())
	for i := range names {
		names[i] = o.prefix + ":probe"
		if len(names) > 1 {
			names[i] = inPart(names[i], o.partOf(i))
		}
	}
	return names
}

// neighbours returns the name of another deployment, whose workers want the same locks.
func (o *Options) neighbours() string { return o.prefix + "-neighbours" }

// setting returns what the plan depends on. The control run always has the kinds that show its bug, even
// if they were not chosen.
func (o *Options) setting(control bool) setting {
	s := setting{seed: o.Seed, topology: o.Topology, length: o.For, kinds: o.chosen, nodes: o.Nodes, workers: o.Workers, ttl: o.TTL, control: control, sets: o.Primitive == "sets"}
	if control && o.Topology.alone() {
		// The bug shows when a server forgets a lock that a worker holds. So the workers have no faults, and
		// neither settings nor scripts take time, as they make no server forget a lock.
		s.kinds = slices.DeleteFunc(slices.Clone(s.kinds), func(k kind) bool { return traits[k].worker || k == settings || k == scripts })
	}
	if control { // the broken lock has no deployment
		s.kinds = slices.DeleteFunc(slices.Clone(s.kinds), func(k kind) bool { return traits[k].ours })
	}
	for _, k := range o.Topology.telling() {
		if control && !slices.Contains(s.kinds, k) {
			s.kinds = append(slices.Clone(s.kinds), k)
		}
	}
	for i := range o.Nodes {
		s.durable, s.wired = append(s.durable, durable(i)), append(s.wired, o.wired(i))
	}
	return s
}

// config returns the configuration that all clients of a deployment have in common.
func config(nodes []string, ttl time.Duration, deployment string) redlatch.Config {
	return redlatch.Config{Nodes: nodes, TTL: ttl, MaxTTL: ttl, Deployment: deployment}
}

func drift(ttl time.Duration) time.Duration { return quorum.Drift(ttl) }

// quarantine returns how long a node may stay out that came back empty. That is up to 2 s longer than the
// quarantine itself, since a server tells its uptime in whole seconds, and clients ask only now and then.
func quarantine(ttl time.Duration) time.Duration {
	return admission.Agreement{MaxTTL: ttl}.Quarantine() + 2*time.Second
}

// durable reports whether a node, from 0, has its data on disk before it answers.
func durable(node int) bool { return node%2 == 0 }

// wired reports whether the traffic to a node, from 0, goes through a network namespace.
func (o *Options) wired(node int) bool { return node%3 == 1 || o.Topology == Single }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", redlatch.ErrInvalid, fmt.Errorf(format, args...))
}

// ours reports whether the workers are this program's own, and so use Redlatch.
func (o *Options) ours() bool {
	return len(o.WorkerCommand) > 1 && o.WorkerCommand[1] == WorkerCommand
}
