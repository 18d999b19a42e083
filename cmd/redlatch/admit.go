package main

import (
	"context"
	"time"

	"github.com/redlatch/redlatch"
)

// admitCmd is `redlatch admit`.
type admitCmd struct {
	connection
	resetFlags

	All bool `help:"Vouch for all of --nodes."`

	Node []string `arg:"" optional:"" help:"The nodes to vouch for: URLs, or addresses as redlatch shows them."`
}

// admitTimeout bounds what one node may take to be looked at and admitted.
const admitTimeout = 5 * time.Second

// Help says what the operator vouches for.
func (*admitCmd) Help() string {
	return `A node that was started a short while ago may have forgotten locks that it had granted. It does not vote until every such lock has run out (the longest TTL and 4 s). If you know that no lock was held on it, or that its data came back complete, vouch for its present run with this command. The next restart begins a quarantine again.

New servers have never granted a lock: run redlatch admit --all once for a new deployment.

--nodes, --deployment, --max-ttl, --no-quarantine and --durable must be those of the clients.

Exit codes:

	0   all nodes that were named vote
	64  usage, or these settings are not those that the deployment has recorded: nothing was changed there
	69  a node could not be reached, or does not vote yet
	77  a node refused (password, permission, a replica, ...)`
}

// Run vouches for every node that was named, and goes on after a failure: the
// nodes are independent of each other.
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
	return a.each(cfg, out, (*redlatch.Client).Admit, "%s votes")
}

// each has act done to each node that was named, and says so with done. It tells
// of every failure.
func (a *admitCmd) each(cfg redlatch.Config, out *printer, act func(*redlatch.Client, context.Context, string) error, done string) error {
	client, err := a.open(cfg, out)
	if err != nil {
		return err
	}
	defer a.close(client, out)
	var failed *outcome
	for _, node := range a.Node {
		ctx, cancel := context.WithTimeout(context.Background(), admitTimeout)
		err := act(client, ctx, node)
		cancel()
		if err == nil {
			out.say(done, nodeText(node, cfg.Nodes))
			continue
		}
		if failed != nil {
			out.fail(failed)
		}
		failed = a.failure(err)
	}
	if failed != nil {
		return failed
	}
	return nil
}

func (a *admitCmd) failure(err error) *outcome {
	end := &outcome{code: nodeCode(err), err: err}
	switch {
	case disagrees(err):
		end.hints = []string{a.setHint()}
	case end.code == exitUsage:
		end.hints = []string{"name one of --nodes, by its URL or as redlatch shows it"}
	}
	return end
}
