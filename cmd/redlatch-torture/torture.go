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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/report"
)

// tortureCommands are `redlatch-torture run` and the hidden command of its workers.
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

// line returns the command line of the run, whose flags set the fields of c.
func (c *tortureCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Torture real servers and worker processes, and judge what the locks did.",
		Long: `Starts its own servers and worker processes, and stops them when it ends. The workers contend for locks. Meanwhile the torture kills, hangs, cuts off and slows servers and steps their clocks; it stops workers for longer than their TTL, starves and kills them. The seed decides the plan of these faults. Afterwards the torture judges the history: whether two workers ever held one lock at once, whether an update was lost behind a fencing token, whether a key was left behind, and how often a lock could be acquired.

A run that proved nothing fails, too. One case is that the control run shows no violation: it has the same plan, over a lock that is broken on purpose.

Topologies:

	single    one server
	redlock   independent masters, a majority of which decides
	sentinel  one node: a master with two replicas, watched by three Sentinels
	cluster   one node: a Redis Cluster of three masters with a replica each

Kinds of faults with single and redlock:

	kill        kill -9 of a server, which starts again with its data
	wipe        the same, but it starts without its data; blackout: wipe of a majority at once
	hang        SIGSTOP of a server
	partition   nothing passes to a server, from it, or both; split: between half of the workers and a majority
	latency     delay and jitter; reset, refuse: connections are broken, or not accepted
	half-open   the server has closed its connections, but the clients do not know
	lost-reply  commands are executed, but their answers are lost
	namespace   packets to or from a server are lost (as root)
	clock       a server's clock is stepped; nudge: by less than the drift
	demote      a server becomes a replica for a while, then a master again, without a restart
	failback    a server's replica is promoted, then the server again, with the replica's data
	attach      a server gets a replica for a while
	settings    appendonly, appendfsync, save or maxmemory-policy is changed, and changed back
	flush       all keys of a server are deleted; scripts: all its scripts
	restore     kill -9 of a server, which starts again with an earlier copy of its data
	admit       an operator admits a server that has forgotten nothing, or tries to admit a replica
	set         one node gets another MaxTTL of the deployment, and later the former one again
	set-all     all nodes get another MaxTTL, and a worker comes that has it (redlock, for 4m or longer)
	stop        SIGSTOP of a worker past the TTL; crash: kill -9; starve: a tenth of the CPU
	stranger    a client with other settings than the deployment's comes, and must be refused
	neighbour   a worker of another deployment comes, for the same locks

With sentinel and cluster, beside settings, flush, scripts, stop, crash, starve, stranger and neighbour:

	kill, hang  of a master; wipe: it is killed, and starts again without its data (cluster)
	failover    a replica is promoted by order while its master is alive, also by force (cluster)
	failback    the same, then the former master is promoted again; set (sentinel)
	lag         a replica that lags behind is promoted (sentinel)
	minority    the master, one Sentinel and half of the workers are cut off from the rest (sentinel)
	sentinel-kill, sentinel-hang
	takeover    a replica takes its master's place without asking, and the master takes it back (cluster)
	move        a slot is moved key by key, and back (cluster)
	fix         a master dies, and its slots are given to others without their keys (cluster)

With --engine zookeeper or etcd, the torture starts an ensemble of three servers, which is one node. Beside stop, crash and starve:

	kill, hang  of the leader, also for longer than the TTL; follower-kill, follower-hang
	minority    one server and half of the workers are cut off from the rest
	restart     all servers are killed at once, and start again with their data
	reset       all clients' connections are broken; lost-reply: the same, before their requests are answered

Exit codes:

	0      nothing was violated
	1      something was violated, or the run proved nothing
	64     usage
	71     a process could not be started, or a file could not be written
	128+n  signal n ended the run early; nothing was violated until then`,
		Example: `  # an hour of faults, with a page to look at
  redlatch-torture run --for 1h --report ./report
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	flags.Var(commandline.Duration(&c.For), "for", "How long to torture. Defaults to 60s.")
	flags.Var(commandline.Uint(&c.Seed), "seed", "Seed of the plan of faults. Defaults to a random one, which is printed.")
	flags.StringVar(&c.Topology, "topology", "", "`KIND` of topology of the servers: single, redlock, sentinel or cluster. Defaults to redlock.")
	flags.StringVar(&c.Engine, "engine", "", "`ENGINE` that keeps the locks: redis, zookeeper or etcd. Defaults to redis.")
	flags.Var(commandline.Optional(&c.NodesCount, commandline.Int), "nodes-count", "How many servers to start for redlock. Defaults to 5.")
	flags.Var(commandline.Int(&c.Workers), "workers", "How many worker processes to start. Defaults to 8.")
	flags.Var(commandline.Int(&c.Names), "names", "How many locks the workers contend for. Defaults to 3, or with a Cluster to 6.")
	flags.StringVar(&c.Primitive, "primitive", "", "`KIND` of lock that the workers take: mutex, sets (of names), shared (readers and writers), permits or mixed. Defaults to mutex.")
	flags.Var(commandline.Duration(&c.TTL), "ttl", "The locks' TTL. Defaults to 2s, or with single and sentinel to 1s. At least 2s with --engine zookeeper or etcd.")
	flags.Var(commandline.List(&c.Faults), "faults", "The kinds of faults, `KIND,...`. Defaults to all kinds of the topology that are possible here.")
	flags.StringVar(&c.HTML, "html", "", "Write the report to `FILE` as an HTML page.")
	flags.StringVar(&c.JSON, "json", "", "Write the report to `FILE` as JSON.")
	flags.StringVar(&c.Report, "report", "", "`DIR` for report.txt, report.html and report.json, and for the workers' logs, in DIR/history, if something was violated.")
	flags.Var(commandline.List(&c.Nodes), "nodes", "Run on your own nodes, `URL,...`. Needs --against-my-nodes.")
	commandline.Bool(flags, &c.AgainstMyNodes, "against-my-nodes", "", "Allow a run on nodes that somebody else may use. The torture does nothing to the nodes: faults hit only the workers, and proxies between workers and nodes. It uses keys of its own, and removes them.")
	flags.StringVar(&c.WorkerCommand, "worker-command", "", "`COMMAND` is another library's worker.")
	flags.Lookup("worker-command").Hidden = true
	commandline.Bool(flags, &c.NoControl, "no-control", "", "Leave out the control run.")
	flags.Lookup("no-control").Hidden = true
	return cmd
}

// Run runs the torture and writes its progress and its report to stdout.
func (c *tortureCmd) Run() error {
	switch {
	case len(c.Nodes) > 0 && !c.AgainstMyNodes:
		return usage("add --against-my-nodes to run on your own nodes, or leave --nodes out to run on servers that the torture starts", "--nodes names nodes that others may use")
	case c.Topology != "" && len(c.Nodes) > 0:
		return usage("leave --topology out, or leave --nodes out to run on servers that the torture starts", "--topology %s is for servers that the torture starts, but --nodes names yours", c.Topology)
	case c.NodesCount != nil && len(c.Nodes) > 0:
		return usage("leave --nodes-count out", "--nodes-count is for servers that the torture starts, but --nodes names yours")
	case c.AgainstMyNodes && len(c.Nodes) == 0:
		return usage("add --nodes redis://HOST:PORT,...", "--against-my-nodes without --nodes")
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
	var removed error
	if c.Report != "" && (err != nil || len(r.Violations()) == 0) {
		removed = os.RemoveAll(c.keep())
	}
	if err := failed(ctx, "torture", err); err != nil {
		return err
	}
	if err := errors.Join(removed, files.write(r)); err != nil {
		return &outcome{code: exitSystem, err: fmt.Errorf("writing the report: %w", err)}
	}
	return judged(ctx, len(r.Violations()), r.OK())
}

// topology returns the topology that --engine or --topology names.
func (c *tortureCmd) topology() (torture.Topology, error) {
	switch engine, err := engineOf(c.Engine); {
	case err != nil:
		return "", err
	case engine == "":
		return torture.Topology(c.Topology), nil
	case c.Topology != "":
		return "", usage("leave --topology out", "--topology %s is for Redis, but --engine is %s", c.Topology, c.Engine)
	case len(c.Nodes) > 0:
		return "", usage("leave --engine out, or leave --nodes out to run on servers that the torture starts", "--engine %s is for servers that the torture starts, but --nodes names yours", c.Engine)
	default:
		return torture.Topology(engine), nil
	}
}

// nodesCount returns the number of nodes that --nodes-count gives, or 0 if the topology decides it.
func (c *tortureCmd) nodesCount(topology torture.Topology) (int, error) {
	switch redlock := topology == "" || topology == torture.Redlock; {
	case c.NodesCount == nil && redlock:
		return 5, nil
	case c.NodesCount == nil:
		return 0, nil
	case slices.Contains(torture.Engines, topology):
		return 0, usage("leave --nodes-count out", "--nodes-count is %d, but --engine %s has three servers", *c.NodesCount, topology)
	case !redlock:
		return 0, usage("leave --nodes-count out, or use --topology redlock", "--nodes-count is %d, but --topology %s has a fixed number of servers", *c.NodesCount, c.Topology)
	}
	return *c.NodesCount, nil
}

// keep returns the directory for the workers' logs, or "" if there is no --report. Run removes it
// if nothing was violated. So it must not be there before.
func (c *tortureCmd) keep() string {
	if c.Report == "" {
		return ""
	}
	return filepath.Join(c.Report, "history")
}

// tortureFiles are the files for the report. They are opened before the run, so that a file that
// cannot be written does not waste the time of the run.
type tortureFiles struct{ html, json, text []*os.File }

// open creates the files that --html, --json and --report name. One that is there, with the report of
// an earlier run, stays as it is until there is a report to write.
func (c *tortureCmd) open() (_ *tortureFiles, err error) {
	f := &tortureFiles{}
	if _, err := os.Lstat(c.keep()); err == nil {
		return nil, usage("name another directory, or move that one away", "%s is there already, maybe with the logs of an earlier run", c.keep())
	}
	defer func() {
		if err != nil {
			f.close()
			err = usage("name a file that can be written", "%v", err)
		}
	}()
	at := func(list *[]*os.File, path string) error {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
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

// write writes the report to stdout and to the files.
func (f *tortureFiles) write(r *report.Report) error {
	_, err := io.WriteString(os.Stdout, r.Text())
	for _, file := range slices.Concat(f.html, f.json, f.text) {
		if cutErr := file.Truncate(0); !errors.Is(cutErr, syscall.EINVAL) { // a pipe has nothing to cut
			err = errors.Join(err, cutErr)
		}
	}
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

// tortureWorkerCmd is the hidden command of a worker.
type tortureWorkerCmd struct{}

func (tortureWorkerCmd) line() *cobra.Command {
	return &cobra.Command{Use: "torture-worker", Hidden: true}
}

func (tortureWorkerCmd) Run() error { return torture.Work(os.Stdin, os.Stdout) }
