package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/doctor"
)

// doctorCmd is `redlatch doctor`. It prints to stdout.
type doctorCmd struct {
	connection

	Lock []string
	JSON bool
}

// line is its command line.
func (d *doctorCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the nodes and say what is wrong with them.",
		Long: `Examines every node, and changes nothing on it. It prints a table of the nodes, then what is wrong with them, the worst first, each with its remedy. --nodes, --deployment, --max-ttl, --no-quarantine, --durable and --key-template must be the same as those of the clients.

In the table, LATENCY is the median round trip and UP the time since the server's start. VOTES says whether the node votes, or when it can. KEEPS is what outlives a restart, CLOCK is how far the node's clock is ahead of this machine's, LACKS has the rights that the user lacks, and SAME AS an earlier node that is the same server. "-" stands for what is unknown or does not apply.

In a Redis Cluster it examines every master, at the address that the Cluster gives for it. The table has one row for the Cluster. Below, what is wrong with one master has the address of that master, and what is wrong with all has the name of the Cluster. --json has each master.

For ZooKeeper and etcd it says whether a majority answers, which servers do not, and what keeps clients from getting locks. Clocks do not matter there.

It tries the user's permissions with commands that cannot have an effect. The server's ACL LOG shows those that were denied.

Exit codes:

	0   all is well
	1   warnings: locks are safe, but something needs mending or waiting
	2   unsafe or unusable: a lock can get two holders, or none
	64  usage`,
		Example: `  # before the first lock, and in monitoring: the exit code is 0 if all is well
  redlatch doctor --json
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	d.connection.addTo(flags)
	flags.Var(commandline.List(&d.Lock), "lock", "Also examine the keys of the locks `NAME,...`, and try the user's permissions on them. Nothing is done to the locks.")
	commandline.Bool(flags, &d.JSON, "json", "", "Print JSON instead of a table.")
	return cmd
}

// doctorName is the lock whose key doctor tries if --lock names none.
const doctorName = "redlatch-doctor"

// Run examines the nodes and says what it found.
func (d *doctorCmd) Run(out *printer) error {
	if d.onEnsemble() {
		return d.runEnsemble()
	}
	cfg, err := d.config()
	if err != nil {
		return err
	}
	names := d.Lock
	if len(names) == 0 {
		names = []string{doctorName}
	}
	d.sayNodes(out)
	reports, err := doctor.Examine(context.Background(), cfg, names...)
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		return &outcome{code: exitUsage, err: err}
	case err != nil:
		return &outcome{code: exitInternal, err: err}
	}
	found := d.diagnose(reports)
	if d.JSON {
		err = writeJSON(os.Stdout, reports, found)
	} else {
		err = writeTable(os.Stdout, reports, found)
	}
	if err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	if code := exitCode(found); code != 0 {
		return &outcome{code: code}
	}
	return nil
}
