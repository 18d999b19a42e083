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

// doctorCmd is `redlatch doctor`. What it prints is what was asked for, so it
// goes to stdout.
type doctorCmd struct {
	connection

	Lock []string
	JSON bool
}

// line is its command line.
func (d *doctorCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at the nodes and say what is wrong with them.",
		Long: `Looks at every node and changes nothing on it: a table of what the nodes are, then what is wrong with them, the worst first, each with its remedy. --nodes, --deployment, --max-ttl, --no-quarantine, --durable and --key-template must be those of the clients.

Of a Redis Cluster it looks at every master, at the address that the Cluster gives for it: one row for the Cluster, and below it what is wrong with a master, named by its address, or with all, named as the Cluster. --json has each master.

Of ZooKeeper and etcd it says whether a majority answers, which servers do not, and what keeps clients from having locks; clocks do not matter there.

Permissions are tried with commands that cannot have an effect; those denied appear in the server's ACL LOG.

Exit codes:

	0   all is well
	1   warnings: locks are safe, and something should be mended or waited for
	2   unsafe or unusable: two holders of a lock are possible, or none
	64  usage`,
		Example: `  # before the first lock, and in monitoring: the exit code is 0 when all is well
  redlatch doctor --json
`,
		Args: commandline.Arguments(),
	}
	flags := cmd.Flags()
	d.connection.addTo(flags)
	flags.Var(commandline.List(&d.Lock), "lock", "Locks, `NAME,...`, whose keys are looked at, and which the user's permissions are tried on. Nothing is done to them.")
	commandline.Bool(flags, &d.JSON, "json", "", "Print JSON instead of a table.")
	return cmd
}

// doctorName is the lock whose key is tried when none was named.
const doctorName = "redlatch-doctor"

// Run looks at the nodes and says what it found.
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
