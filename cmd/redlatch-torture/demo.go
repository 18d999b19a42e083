package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/demo"
)

// demoCommands are `redlatch-torture demo` and the processes that it starts.
var demoCommands = []command{new(demoCmd), demoWorkerCmd{}, demoNodeCmd{}}

type demoCmd struct {
	For        time.Duration
	Workers    int
	NodesCount *int
	Engine     string
	Embedded   bool
	NoLock     bool
}

// line is its command line.
func (d *demoCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Race processes for one lock while nodes are killed and hung, and measure what comes of it.",
		Long: `Starts servers and worker processes of its own, which are gone when it ends, and touches nothing else. The workers take one lock in turn to change one file by reading and writing it, while nodes are killed, hung and brought back, a minority at a time. An overlap of two workers is found without asking the lock.

Exit codes:

	0      nothing was violated
	1      something was, or the run proved nothing
	64     usage
	71     a process could not be started, or a file not written
	128+n  signal n ended it early; nothing was violated until then`,
		Example: `  # what happens when servers die
  redlatch-torture demo
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	d.For, d.Workers = 10*time.Second, 4
	flags.Var(commandline.Duration(&d.For), "for", "How long to race. Defaults to 10s.")
	flags.Var(commandline.Int(&d.Workers), "workers", "How many worker processes. Defaults to 4.")
	flags.Var(commandline.Optional(&d.NodesCount, commandline.Int), "nodes-count", "How many nodes. Defaults to 5, and an ensemble has 3.")
	flags.StringVar(&d.Engine, "engine", "", "Where the lock is kept, `ENGINE`: redis, zookeeper or etcd. Defaults to redis.")
	commandline.Bool(flags, &d.Embedded, "embedded", "", "Use the embedded servers even where redis-server or valkey-server is installed.")
	commandline.Bool(flags, &d.NoLock, "no-lock", "", "Have the workers ignore the lock, to see that the demo would notice. Exits with 1.")
	return cmd
}

// engineOf reads what --engine says, "" for Redis.
func engineOf(name string) (string, error) {
	switch name {
	case "", "redis":
		return "", nil
	case "zookeeper", "etcd":
		return name, nil
	}
	return "", usage("use redis, zookeeper or etcd", "--engine is %q", name)
}

// Run runs the demo, which writes to stdout: it is what was asked for.
func (d *demoCmd) Run() error {
	engine, err := engineOf(d.Engine)
	if err != nil {
		return err
	}
	nodes := 5
	switch {
	case d.NodesCount != nil:
		nodes = *d.NodesCount
	case engine != "":
		nodes = 3
	}
	ctx, stop := commandline.UntilSignal()
	defer stop()
	result, err := demo.Run(ctx, demo.Options{
		For: d.For, Workers: d.Workers, Nodes: nodes, Engine: engine,
		Embedded: d.Embedded, NoLock: d.NoLock, Out: os.Stdout,
	})
	if err := failed(ctx, "demo", err); err != nil {
		return err
	}
	return judged(ctx, len(result.Violations()), result.OK())
}

type demoWorkerCmd struct{}

func (demoWorkerCmd) line() *cobra.Command { return &cobra.Command{Use: "demo-worker", Hidden: true} }

func (demoWorkerCmd) Run() error { return demo.Work(os.Stdin, os.Stdout) }

type demoNodeCmd struct{}

func (demoNodeCmd) line() *cobra.Command { return &cobra.Command{Use: "demo-node", Hidden: true} }

func (demoNodeCmd) Run() error { return demo.Serve(os.Stdin, os.Stdout) }
