package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/admission"
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
		Short: "Vouch for a node that has just started, so that it votes at once.",
		Long: `A node that has just started, was promoted or lost its keys may have forgotten locks that it granted. So it is in quarantine: it does not vote until every such lock has run out (the longest TTL plus 4 s). If you know that no such lock is held any more, or that its data came back complete, end the quarantine with this command. The next restart begins a new one.

New servers have never granted a lock: run redlatch admit --all once for a new deployment.

When most of the nodes have answered, redlatch waits half as long again for the others, and for --node-timeout at least.

--nodes, --deployment, --max-ttl, --no-quarantine and --durable must be the same as those of the clients.

Arguments:

	<node>  The nodes to vouch for: URLs, or addresses as redlatch shows them.

Exit codes:

	0   all named nodes vote
	64  usage, or a node has recorded other settings for the deployment: nothing was changed there
	69  a node could not be reached, or does not vote yet
	77  a node refused (password, permission, a replica, ...)`,
		Example: `  # new servers, which have never granted a lock
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
	commandline.Bool(flags, &a.All, "all", "", "Vouch for all nodes of --nodes.")
	return cmd
}

// admitTimeout limits how long it may take to examine and admit the nodes. What the others have
// recorded is waited for, five times NodeTimeout if one of them hangs.
func admitTimeout(cfg redlatch.Config) time.Duration {
	return max(5*time.Second, 10*cfg.NodeTimeout)
}

// Run vouches for every named node, even if that fails on others: the nodes are
// independent of each other.
func (a *admitCmd) Run(out *printer) error {
	switch {
	case a.All && len(a.Node) > 0:
		return usage("name the nodes, or give --all", "both --all and names of nodes")
	case !a.All && len(a.Node) == 0 && a.Reset:
		return usage("name the nodes to reset, as redlatch shows them; to change all nodes, use redlatch deployment set", "no node is named")
	case !a.All && len(a.Node) == 0:
		return usage("name the nodes to vouch for, as redlatch shows them, or give --all", "no node is named")
	case a.All && a.Reset:
		return usage("name the nodes to reset; to change all nodes, use redlatch deployment set", "both --all and --reset")
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

// errLate is the error for a node that redlatch has stopped waiting for.
var errLate = errors.New("no answer, while most of the nodes have answered")

// each calls act for all named nodes at the same time. It prints done for each success,
// and reports every failure. When more than half of the nodes have answered, it waits
// for the others for rest.
func (a *admitCmd) each(cfg redlatch.Config, out *printer, act func(*redlatch.Client, context.Context, string) error, done string, rest func() time.Duration) error {
	client, err := a.open(cfg, out)
	if err != nil {
		return err
	}
	defer a.close(client, out)
	ctx, stop := context.WithTimeout(context.Background(), admitTimeout(cfg))
	defer stop()
	ctx, late := context.WithCancelCause(ctx)
	defer late(nil)
	errs := make([]error, len(a.Node))
	// Each answer resets the time at which redlatch stops waiting for the other nodes.
	var giveUp *time.Timer
	if rest != nil {
		giveUp = time.AfterFunc(admitTimeout(cfg), func() { late(errLate) })
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
		if errs[i] == nil {
			out.say(done, nodeText(node, cfg.Nodes))
			continue
		}
		next := a.failure(errs[i])
		if failed != nil {
			if slices.Equal(failed.hints, next.hints) {
				failed.hints = nil // they are said once, after the last
			}
			out.fail(failed)
		}
		failed = next
	}
	if failed != nil {
		return failed
	}
	return nil
}

// rest is how long to wait for the last nodes: half of the time that the command has taken so far, and
// --node-timeout at least, as the others may be much nearer.
func (a *admitCmd) rest() time.Duration {
	return max(cmp.Or(a.NodeTimeout, defaultNodeTimeout), time.Since(started)/2)
}

// started is the time at which this program started.
var started = time.Now()

func (a *admitCmd) failure(err error) *outcome {
	end := &outcome{code: nodeCode(err), err: errors.New(withoutScript(err.Error()))}
	switch {
	case errors.Is(err, errLate):
		end.hints = []string{"to wait longer for it, give --node-timeout D"}
	case disagrees(err):
		end.hints = []string{a.setHint()}
	case remedy(err) != "":
		end.hints = []string{remedy(err)}
	case end.code == exitUsage && !errors.Is(err, admission.ErrUnfit): // no node has that name
		end.hints = []string{"name one of --nodes, by its URL or as redlatch shows it"}
	}
	return end
}
