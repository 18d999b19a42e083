package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/demo"
)

// demoCommands are `redlatch-torture demo` and the hidden commands of the processes that it starts.
var demoCommands = []command{new(demoCmd), demoWorkerCmd{}, demoNodeCmd{}}

// demoCmd is `redlatch-torture demo`.
type demoCmd struct {
	For        time.Duration
	Workers    int
	NodesCount *int
	Engine     string
	Embedded   bool
	NoLock     bool
}

// line returns the command line of the demo, whose flags set the fields of d.
func (d *demoCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Have processes race for one lock while nodes die and hang, and measure the result.",
		Long: `Starts its own servers and worker processes, stops them when it ends, and touches nothing else. The workers take one lock in turn to read and rewrite one file. Meanwhile the demo kills, hangs and restores nodes, a minority at a time. It detects an overlap of two workers without asking the lock.

Exit codes:

	0      nothing was violated
	1      something was violated, or the run proved nothing
	64     usage
	71     a process could not be started, or a file could not be written
	128+n  signal n ended the run early; nothing was violated until then`,
		Example: `  # what happens when servers die
  redlatch-torture demo
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	d.For, d.Workers = 10*time.Second, 4
	flags.Var(commandline.Duration(&d.For), "for", "How long to race. Defaults to 10s.")
	flags.Var(commandline.Int(&d.Workers), "workers", "How many worker processes to start. Defaults to 4.")
	flags.Var(commandline.Optional(&d.NodesCount, commandline.Int), "nodes-count", "How many nodes to start. Defaults to 5; an ensemble has 3.")
	flags.StringVar(&d.Engine, "engine", "", "`ENGINE` that keeps the lock: redis, zookeeper or etcd. Defaults to redis.")
	commandline.Bool(flags, &d.Embedded, "embedded", "", "Use the embedded servers even if redis-server or valkey-server is installed.")
	commandline.Bool(flags, &d.NoLock, "no-lock", "", "Have the workers ignore the lock, to show that the demo notices it. Exits with 1.")
	return cmd
}

// engineOf returns the engine that --engine names, or "" for Redis.
func engineOf(name string) (string, error) {
	switch name {
	case "", "redis":
		return "", nil
	case "zookeeper", "etcd":
		return name, nil
	}
	return "", usage("use redis, zookeeper or etcd", "--engine is %q", name)
}

// Run runs the demo and writes its output to stdout.
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

// demoWorkerCmd is the hidden command of a worker of the demo.
type demoWorkerCmd struct{}

func (demoWorkerCmd) line() *cobra.Command { return &cobra.Command{Use: "demo-worker", Hidden: true} }

func (demoWorkerCmd) Run() error { return demo.Work(os.Stdin, os.Stdout) }

// demoNodeCmd is the hidden command of an embedded server.
type demoNodeCmd struct{}

func (demoNodeCmd) line() *cobra.Command { return &cobra.Command{Use: "demo-node", Hidden: true} }

func (demoNodeCmd) Run() error { return demo.Serve(os.Stdin, os.Stdout) }
