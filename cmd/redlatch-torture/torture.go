//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/report"
)

// tortureCommands are `redlatch-torture run` and the processes that it starts.
var tortureCommands = []command{&tortureCmd{For: time.Minute, Workers: 8}, tortureWorkerCmd{}}

// tortureCmd is `redlatch-torture run`.
type tortureCmd struct {
	For        time.Duration
	Seed       uint64
	Topology   string
	Engine     string
	NodesCount *int
	Workers    int
	Names      int
	Primitive  string
	TTL        time.Duration
	Faults     []string
	HTML       string
	JSON       string
	Report     string

	Nodes          []string
	AgainstMyNodes bool

	WorkerCommand string
	NoControl     bool
}

// line is its command line.
func (c *tortureCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Torture real servers and worker processes, and judge what the locks did.",
		Long: `Starts servers and worker processes of its own, which are gone when it ends. Workers contend for locks; meanwhile servers are killed, hung, cut off, slowed and their clocks stepped, workers are stopped for longer than their TTL, starved and killed, by a plan that the seed decides. Afterwards the history is judged: whether two ever held one lock at once, whether an update was lost behind a fencing token, whether a key stayed behind, and how often a lock could be acquired.

A run that proved nothing fails, too: for example, if its control run, the same plan over a lock that is broken on purpose, shows no violation.

Topologies:

	single    one server
	redlock   independent masters, of which a majority decides
	sentinel  one node: a master with two replicas, watched by three Sentinels
	cluster   one node: a Redis Cluster of three masters with a replica each

Kinds of faults, of single and redlock:

	kill        kill -9 of a server, started again with its data
	wipe        the same without its data; blackout: of a majority at once
	hang        SIGSTOP of a server
	partition   nothing passes to a server, from it, or both; split: for half of the workers, with a majority
	latency     delay and jitter; reset, refuse: connections broken, or not accepted
	half-open   the server has closed its connections, and the clients do not know
	lost-reply  commands are executed and their answers lost
	namespace   packets to or from a server are lost (as root)
	clock       a server's clock is stepped; nudge: by less than the drift
	demote      a server is a replica for a while, and a master again, in one process
	failback    a server's replica is promoted, and then the server again, with what that one has
	attach      a server is given a replica, which goes again
	settings    appendonly, appendfsync, save or maxmemory-policy is changed, and changed back
	flush       all keys of a server are deleted; scripts: all its scripts
	restore     kill -9 of a server, started again with a copy of its data from before
	admit       an operator admits a server that has forgotten nothing, or in vain a replica
	set         one node is given another MaxTTL of the deployment, and later the former one
	set-all     all nodes are, and a worker comes that has it too (redlock, for 4m or longer)
	stop        SIGSTOP of a worker past the TTL; crash: kill -9; starve: a tenth of the CPU
	stranger    a client comes whose settings are not the deployment's, and must be refused
	neighbour   a worker of another deployment comes, for the same locks

Of sentinel and cluster, beside settings, flush, scripts, stop, crash, starve, stranger and neighbour:

	kill, hang  of a master; wipe: killed, and started again without its data (cluster)
	failover    a replica is promoted by order, its master alive, also by force (cluster)
	failback    the same, and then the former master again; set (sentinel)
	lag         a replica is promoted that is behind (sentinel)
	minority    the master, one Sentinel and half of the workers are cut off from the rest (sentinel)
	sentinel-kill, sentinel-hang
	takeover    a replica takes its master's place without asking, and the other way again (cluster)
	move        a slot is moved key by key, and back (cluster)
	fix         a master died, and its slots are given away without their keys (cluster)

With --engine zookeeper or etcd, three servers of an ensemble are started, which are one node. Beside stop, crash and starve:

	kill, hang  of the leader, also for longer than the TTL; follower-kill, follower-hang
	minority    one server and half of the workers are cut off from the rest
	restart     all servers are killed at once, and started again with their data
	reset       all clients' connections are broken; lost-reply: before their requests are answered

Exit codes:

	0      nothing was violated
	1      something was, or the run proved nothing
	64     usage
	71     a process could not be started, or a file not written
	128+n  signal n ended it early; nothing was violated until then`,
		Example: `  # an hour of faults, with a page to look at
  redlatch-torture run --for 1h --report ./report
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	flags.Var(commandline.Duration(&c.For), "for", "How long to torture. Defaults to 60s.")
	flags.Var(commandline.Uint(&c.Seed), "seed", "What the plan of the faults is drawn from. Defaults to a random one, which is printed.")
	flags.StringVar(&c.Topology, "topology", "", "What the servers are to each other, `KIND`: single, redlock, sentinel or cluster. Defaults to redlock.")
	flags.StringVar(&c.Engine, "engine", "", "Where the locks are kept, `ENGINE`: redis, zookeeper or etcd. Defaults to redis.")
	flags.Var(commandline.Optional(&c.NodesCount, commandline.Int), "nodes-count", "How many servers to start for redlock. Defaults to 5.")
	flags.Var(commandline.Int(&c.Workers), "workers", "How many worker processes. Defaults to 8.")
	flags.Var(commandline.Int(&c.Names), "names", "How many locks they contend for. Defaults to 3, and to 6 with a Cluster.")
	flags.StringVar(&c.Primitive, "primitive", "", "What the workers take, `KIND`: mutex, sets (of names), shared (readers and writers), permits or mixed. Defaults to mutex.")
	flags.Var(commandline.Duration(&c.TTL), "ttl", "The locks' TTL. Defaults to 2s, and to 1s with single and sentinel. At least 2s with an engine.")
	flags.Var(commandline.List(&c.Faults), "faults", "The kinds of faults, `KIND,...`. Defaults to all that the topology has and that are possible here.")
	flags.StringVar(&c.HTML, "html", "", "Write the report as a page of its own, `FILE`.")
	flags.StringVar(&c.JSON, "json", "", "Write the report for programs, `FILE`.")
	flags.StringVar(&c.Report, "report", "", "`DIR` for report.txt, report.html and report.json, and for the workers' logs if something was violated.")
	flags.Var(commandline.List(&c.Nodes), "nodes", "Nodes of yours, `URL,...`, to run on instead. Needs --against-my-nodes.")
	commandline.Bool(flags, &c.AgainstMyNodes, "against-my-nodes", "", "Allow to run on nodes that somebody else may use. Nothing is done to them: the faults befall the workers, and proxies between. Keys are the torture's own and are removed.")
	flags.StringVar(&c.WorkerCommand, "worker-command", "", "`COMMAND` is another library's worker.")
	flags.Lookup("worker-command").Hidden = true
	commandline.Bool(flags, &c.NoControl, "no-control", "", "Leave out the control run.")
	flags.Lookup("no-control").Hidden = true
	return cmd
}

// Run runs the torture, which writes to stdout: it is what was asked for.
func (c *tortureCmd) Run() error {
	switch {
	case len(c.Nodes) > 0 && !c.AgainstMyNodes:
		return usage("add --against-my-nodes to run on nodes of yours, or leave out --nodes to run on servers of its own", "--nodes names nodes that others may use")
	case c.Topology != "" && len(c.Nodes) > 0:
		return usage("leave --topology out, or --nodes to run on servers of its own", "--topology %s is for servers that the torture starts, and --nodes names yours", c.Topology)
	case c.NodesCount != nil && len(c.Nodes) > 0:
		return usage("leave --nodes-count out", "--nodes-count is for servers that the torture starts, and --nodes names yours")
	case c.AgainstMyNodes && len(c.Nodes) == 0:
		return usage("add --nodes redis://HOST:PORT,...", "--against-my-nodes names no nodes")
	}
	topology, err := c.topology()
	if err != nil {
		return err
	}
	nodes, err := c.nodesCount(topology)
	if err != nil {
		return err
	}
	files, err := c.open()
	if err != nil {
		return err
	}
	defer files.close()
	if c.Seed == 0 {
		c.Seed = 1 + uint64(rand.Uint32())
	}
	ctx, ended := commandline.UntilSignal()
	defer ended()
	r, err := torture.Run(ctx, torture.Options{
		For: c.For, Seed: c.Seed, Topology: topology, Nodes: nodes, Workers: c.Workers, Names: c.Names, Primitive: c.Primitive, TTL: c.TTL,
		Faults: c.Faults, Yours: c.Nodes, WorkerCommand: strings.Fields(c.WorkerCommand), NoControl: c.NoControl, Keep: c.keep(), Out: os.Stdout,
	})
	if err := failed(ctx, "torture", err); err != nil {
		return err
	}
	if c.Report != "" && len(r.Violations()) == 0 {
		err = os.RemoveAll(c.keep())
	}
	if err := errors.Join(err, files.write(r)); err != nil {
		return &outcome{code: exitSystem, err: fmt.Errorf("writing the report: %w", err)}
	}
	return judged(ctx, len(r.Violations()), r.OK())
}

// topology is what --engine or --topology says.
func (c *tortureCmd) topology() (torture.Topology, error) {
	switch engine, err := engineOf(c.Engine); {
	case err != nil:
		return "", err
	case engine == "":
		return torture.Topology(c.Topology), nil
	case c.Topology != "":
		return "", usage("leave --topology out", "--topology %s is of Redis, and --engine is %s", c.Topology, c.Engine)
	case len(c.Nodes) > 0:
		return "", usage("leave --engine out, or --nodes to run on servers of its own", "--engine %s is for servers that the torture starts, and --nodes names yours", c.Engine)
	default:
		return torture.Topology(engine), nil
	}
}

// nodesCount is what --nodes-count says, 0 where the topology says it.
func (c *tortureCmd) nodesCount(topology torture.Topology) (int, error) {
	switch redlock := topology == "" || topology == torture.Redlock; {
	case c.NodesCount == nil && redlock:
		return 5, nil
	case c.NodesCount == nil:
		return 0, nil
	case slices.Contains(torture.Engines, topology):
		return 0, usage("leave --nodes-count out", "--nodes-count is %d, but --engine %s has three servers", *c.NodesCount, topology)
	case !redlock:
		return 0, usage("leave --nodes-count out, or use --topology redlock", "--nodes-count is %d, but --topology %s has servers of its own number", *c.NodesCount, c.Topology)
	}
	return *c.NodesCount, nil
}

// keep is where the workers' logs go, which are kept if they show something.
func (c *tortureCmd) keep() string {
	if c.Report == "" {
		return ""
	}
	return filepath.Join(c.Report, "history")
}

// tortureFiles are where the report goes, opened before an hour is spent on it.
type tortureFiles struct{ html, json, text []*os.File }

func (c *tortureCmd) open() (_ *tortureFiles, err error) {
	f := &tortureFiles{}
	defer func() {
		if err != nil {
			f.close()
			err = usage("name a file that can be written", "%v", err)
		}
	}()
	at := func(list *[]*os.File, path string) error {
		file, err := os.Create(path)
		*list = append(*list, file)
		return err
	}
	if c.HTML != "" {
		err = errors.Join(err, at(&f.html, c.HTML))
	}
	if c.JSON != "" {
		err = errors.Join(err, at(&f.json, c.JSON))
	}
	if c.Report != "" {
		err = errors.Join(err, os.MkdirAll(c.Report, 0o755))
		err = errors.Join(err, at(&f.html, filepath.Join(c.Report, "report.html")),
			at(&f.json, filepath.Join(c.Report, "report.json")), at(&f.text, filepath.Join(c.Report, "report.txt")))
	}
	return f, err
}

func (f *tortureFiles) close() {
	for _, list := range [][]*os.File{f.html, f.json, f.text} {
		for _, file := range list {
			file.Close()
		}
	}
}

func (f *tortureFiles) write(r *report.Report) error {
	_, err := io.WriteString(os.Stdout, r.Text())
	for _, file := range f.text {
		_, textErr := io.WriteString(file, r.Text())
		err = errors.Join(err, textErr)
	}
	for _, file := range f.json {
		err = errors.Join(err, r.JSON(file))
	}
	for _, file := range f.html {
		err = errors.Join(err, r.HTML(file))
	}
	return err
}

type tortureWorkerCmd struct{}

func (tortureWorkerCmd) line() *cobra.Command {
	return &cobra.Command{Use: "torture-worker", Hidden: true}
}

func (tortureWorkerCmd) Run() error { return torture.Work(os.Stdin, os.Stdout) }
