package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// admitCmd is `redlatch admit`.
type admitCmd struct {
	connection
	resetFlags

	All bool

	Node []string
}

// line is its command line.
func (a *admitCmd) line() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admit [<node> ...]",
		Short: "Vouch for a node that was just started, so that it votes at once.",
		Long: `A node that was started a short while ago may have forgotten locks that it had granted. It does not vote until every such lock has run out (the longest TTL and 4 s). If you know that no lock was held on it, or that its data came back complete, vouch for its present run with this command. The next restart begins a quarantine again.

New servers have never granted a lock: run redlatch admit --all once for a new deployment.

When most of the nodes have answered, the others are waited for half as long again, or for --node-timeout if that is given.

--nodes, --deployment, --max-ttl, --no-quarantine and --durable must be those of the clients.

Arguments:

	<node>  The nodes to vouch for: URLs, or addresses as redlatch shows them.

Exit codes:

	0   all nodes that were named vote
	64  usage, or these settings are not those that the deployment has recorded: nothing was changed there
	69  a node could not be reached, or does not vote yet
	77  a node refused (password, permission, a replica, ...)`,
		Example: `  # new servers, of which none has held a lock
  redlatch admit --all --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  # one server, by its name as redlatch shows it
  redlatch admit 10.0.0.3:6379
`,
		Args: func(_ *cobra.Command, args []string) error {
			a.Node = args
			return nil
		},
	}
	flags := cmd.Flags()
	a.connection.addTo(flags)
	a.resetFlags.addTo(flags)
	commandline.Bool(flags, &a.All, "all", "", "Vouch for all of --nodes.")
	return cmd
}

// admitTimeout bounds what the nodes may take to be looked at and admitted.
const admitTimeout = 5 * time.Second

// Run vouches for every node that was named, whatever becomes of the others: they are
// independent of each other.
func (a *admitCmd) Run(out *printer) error {
	switch {
	case a.All && len(a.Node) > 0:
		return usage("name the nodes, or give --all", "--all and names of nodes")
	case !a.All && len(a.Node) == 0:
		return usage("name the nodes to vouch for, as redlatch shows them, or give --all", "no node is named")
	case a.All && a.Reset:
		return usage("to change all nodes: redlatch deployment set", "--reset is for nodes by name")
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if a.All {
		a.Node = cfg.Nodes
	}
	if a.Reset {
		return a.reset(cfg, out)
	}
	return a.each(cfg, out, (*redlatch.Client).Admit, "%s votes", a.rest)
}

// errLate is why a node is not waited for any more.
var errLate = errors.New("no answer, while most of the nodes have given theirs")

// each has act done to each node that was named, to all of them at a time, and says so
// with done. It tells of every failure. When more than half have answered, it waits for
// the others for rest.
func (a *admitCmd) each(cfg redlatch.Config, out *printer, act func(*redlatch.Client, context.Context, string) error, done string, rest func() time.Duration) error {
	client, err := a.open(cfg, out)
	if err != nil {
		return err
	}
	defer a.close(client, out)
	ctx, stop := context.WithTimeout(context.Background(), admitTimeout)
	defer stop()
	ctx, late := context.WithCancelCause(ctx)
	defer late(nil)
	errs := make([]error, len(a.Node))
	// The nodes that answer put off the time at which the others are given up.
	var giveUp *time.Timer
	if rest != nil {
		giveUp = time.AfterFunc(admitTimeout, func() { late(errLate) })
		defer giveUp.Stop()
	}
	var running sync.WaitGroup
	var answered atomic.Int32
	for i, node := range a.Node {
		running.Go(func() {
			errs[i] = act(client, ctx, node)
			if errs[i] != nil && context.Cause(ctx) == errLate {
				errs[i] = fmt.Errorf("admit %s: %w", nodeText(node, cfg.Nodes), errLate)
			}
			if int(answered.Add(1)) > len(a.Node)/2 && rest != nil {
				giveUp.Reset(rest())
			}
		})
	}
	running.Wait()
	var failed *outcome
	for i, node := range a.Node {
		switch {
		case errs[i] == nil:
			out.say(done, nodeText(node, cfg.Nodes))
		case failed != nil:
			out.fail(failed)
			fallthrough
		default:
			failed = a.failure(errs[i])
		}
	}
	if failed != nil {
		return failed
	}
	return nil
}

// rest is how long the last nodes are waited for: for --node-timeout if it was given, and
// not for longer than half of what everything has taken so far if not.
func (a *admitCmd) rest() time.Duration {
	if a.NodeTimeout != 0 {
		return a.NodeTimeout
	}
	return min(defaultNodeTimeout, time.Since(started)/2)
}

// started is when this program was.
var started = time.Now()

func (a *admitCmd) failure(err error) *outcome {
	end := &outcome{code: nodeCode(err), err: err}
	switch {
	case errors.Is(err, errLate):
		end.hints = []string{"to wait longer for it: --node-timeout D"}
	case disagrees(err):
		end.hints = []string{a.setHint()}
	case end.code == exitUsage:
		end.hints = []string{"name one of --nodes, by its URL or as redlatch shows it"}
	}
	return end
}
