package main

import (
	"os"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/demo"
	"github.com/redlatch/redlatch/internal/commandline"
)

// demoCommands are `redlatch-torture demo` and the processes that it starts.
type demoCommands struct {
	Demo       demoCmd       `cmd:"" help:"Race processes for one lock while nodes are killed and hung, and measure what comes of it."`
	DemoWorker demoWorkerCmd `cmd:"" name:"demo-worker" hidden:""`
	DemoNode   demoNodeCmd   `cmd:"" name:"demo-node" hidden:""`
}

var _ = []command{(*demoCmd)(nil), (*demoWorkerCmd)(nil), (*demoNodeCmd)(nil)}

type demoCmd struct {
	For        time.Duration `default:"10s" placeholder:"D" help:"How long to race. Defaults to 10s."`
	Workers    int           `default:"4" placeholder:"N" help:"How many worker processes. Defaults to 4."`
	NodesCount int           `default:"5" placeholder:"N" help:"How many nodes. Defaults to 5."`
	Embedded   bool          `help:"Use the embedded servers even where redis-server or valkey-server is installed."`
	NoLock     bool          `help:"Have the workers ignore the lock, to see that the demo would notice. Exits with 1."`
}

// Help says what is to be seen.
func (*demoCmd) Help() string {
	return `Starts servers and worker processes of its own, which are gone when it ends, and touches nothing else. The workers take one lock in turn to change one file by reading and writing it, while nodes are killed, hung and brought back, a minority at a time. An overlap of two workers is found without asking the lock.

Exit codes:

	0      nothing was violated
	1      something was, or the run proved nothing
	64     usage
	71     a process could not be started, or a file not written
	128+n  signal n ended it early; nothing was violated until then`
}

// Run runs the demo, which writes to stdout: it is what was asked for.
func (d *demoCmd) Run() error {
	ctx, stop := commandline.UntilSignal()
	defer stop()
	result, err := demo.Run(ctx, demo.Options{
		For: d.For, Workers: d.Workers, Nodes: d.NodesCount,
		Embedded: d.Embedded, NoLock: d.NoLock, Out: os.Stdout,
	})
	if err := failed(ctx, "demo", err); err != nil {
		return err
	}
	return judged(ctx, len(result.Violations()), result.OK())
}

type demoWorkerCmd struct{}

func (demoWorkerCmd) Run() error { return demo.Work(os.Stdin, os.Stdout) }

type demoNodeCmd struct{}

func (demoNodeCmd) Run() error { return demo.Serve(os.Stdin, os.Stdout) }
