//go:build linux

// Package torture is `redlatch-torture run`: real servers and worker processes under
// faults, from a plan that a seed decides, and a judge of what came of it.
//
// # Who is who
//
// The torture starts servers, workers ([Work]), in front of each server a proxy
// for each side of the network, and the registers that the locks protect. A
// planner draws the faults, a torturer carries them out, workers and torturer
// write down what happens, and package judge looks at it afterwards.
//
// # What a run proves
//
// A run without violations proves nothing by itself. So it fails when a kind of
// fault that was asked for did not happen, when the lock was hardly ever
// acquired, and when its control run, the same plan over a lock that is broken on
// purpose, shows no violation.
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
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// WorkerCommand is the hidden command of the program that calls Run: it must
// call Work for it.
const WorkerCommand = "torture-worker"

// Options say how to run.
type Options struct {
	// For is how long the workers are tortured, at least 10 s, and 30 s where the
	// topology is one node. The control run comes on top of it.
	For time.Duration
	// Seed decides the plan.
	Seed uint64
	// Topology is what the servers are to each other. Defaults to Redlock.
	Topology Topology
	// Nodes is the number of nodes, 3 to 15, or 0 where the topology is one node.
	// Workers is the number of worker processes, 2 to 64, and Names of locks, 1
	// to 64, by default the topology's.
	Nodes, Workers, Names int
	// Primitive is what the workers take: mutex, which it defaults to, sets, shared, permits or mixed.
	Primitive string
	// TTL is the locks', 500 ms to 1 min, from 2 s where the topology is an engine's. Defaults to the
	// topology's.
	TTL time.Duration
	// Faults are the kinds of faults. None means all that are possible.
	Faults []string
	// Yours are the URLs of nodes that are not the torture's own: it does nothing
	// to them, only to the workers and to the network between, and removes what
	// it put there.
	Yours []string
	// WorkerCommand is the workers' command line. Defaults to this program's own
	// workers.
	WorkerCommand []string
	// NoControl leaves out the control run. The run then says nothing of its own worth.
	NoControl bool
	// Keep is a directory for the workers' logs. Defaults to none: they are
	// removed.
	Keep string
	// Out is told how it goes, a line at a time.
	Out io.Writer

	prefix string
	chosen []kind
	// primitives are what the workers choose from, none for locks of one name alone.
	primitives []worker.Primitive
	left       string // why faults were left out, "" if none were
}

const (
	fewestNodes, mostNodes     = 3, 15
	fewestWorkers, mostWorkers = 2, 64
	mostNames                  = 64
	longestTTL                 = time.Minute
)

// complete checks the options, with errors that wrap redlatch.ErrInvalid and
// name the setting, and fills in the rest.
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
		if _, _, err := redisconn.Parse(raw); err != nil {
			return invalid("--nodes: %w", err)
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

// choose settles on the kinds. What was asked for and is not possible is an
// error; what was not is left out.
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

// lockNames are what the workers contend for.
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

// probeNames are what is locked to see whether a lock can be had, one for each part
// of the node.
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

// neighbours are another deployment, whose workers want the same locks.
func (o *Options) neighbours() string { return o.prefix + "-neighbours" }

// setting is what the plan is made for, of the control run's too: that suffers what shows
// its bug, whatever was chosen.
func (o *Options) setting(control bool) setting {
	s := setting{seed: o.Seed, topology: o.Topology, length: o.For, kinds: o.chosen, nodes: o.Nodes, workers: o.Workers, ttl: o.TTL, control: control}
	if control && o.Topology.alone() {
		// Its workers are left alone: they are to hold locks when servers forget them. Nor is its
		// short time spent on what makes no server forget anything.
		s.kinds = slices.DeleteFunc(slices.Clone(s.kinds), func(k kind) bool { return traits[k].worker || k == settings || k == scripts })
	}
	if control { // its lock knows of no deployment
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

// config is that of all clients of the torture, who must agree.
func config(nodes []string, ttl time.Duration, deployment string) redlatch.Config {
	return redlatch.Config{Nodes: nodes, TTL: ttl, MaxTTL: ttl, Deployment: deployment}
}

func drift(ttl time.Duration) time.Duration { return quorum.Drift(ttl) }

// quarantine is how long a node stays out that came back empty: its uptime comes
// in whole seconds, and it is asked again now and then.
func quarantine(ttl time.Duration) time.Duration {
	return node.Deployment{MaxTTL: ttl}.Quarantine() + 2*time.Second
}

func durable(node int) bool { return node%2 == 0 }

func (o *Options) wired(node int) bool { return node%3 == 1 || o.Topology == Single }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", redlatch.ErrInvalid, fmt.Errorf(format, args...))
}

// ours reports whether the workers are this program's own.
func (o *Options) ours() bool {
	return len(o.WorkerCommand) > 1 && o.WorkerCommand[1] == WorkerCommand
}
