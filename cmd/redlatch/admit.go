package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch"
)

// admitCmd is `redlatch admit`.
type admitCmd struct {
	connection
	resetFlags

	Node []string `arg:"" help:"The nodes to vouch for: URLs, or addresses as redlatch shows them."`
}

// admitTimeout bounds what one node may take to be looked at and admitted.
const admitTimeout = 5 * time.Second

// Help says what the operator vouches for.
func (*admitCmd) Help() string {
	return `A node that was started a short while ago may have forgotten locks that it had given away. It is not asked for its vote until every such lock has run out (the longest TTL and a few seconds). Whoever knows better - no lock was held on it, or its data came back whole - vouches for its present run with this command. The next restart is judged anew.

--nodes, --deployment, --max-ttl and --no-fence must be those of the clients.`
}

// Run vouches for every node that was named, and goes on after a failure: the
// nodes are independent of each other.
func (a *admitCmd) Run(out *printer) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if a.Reset {
		return a.reset(cfg, out)
	}
	return a.each(cfg, out, (*redlatch.Client).Admit, "%s votes")
}

// each has act done to each node that was named, and says so with done. It tells
// of every failure.
func (a *admitCmd) each(cfg redlatch.Config, out *printer, act func(*redlatch.Client, context.Context, string) error, done string) error {
	client, err := open(cfg)
	if err != nil {
		return err
	}
	defer client.Close()
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
		failed = admitFailure(err)
	}
	if failed != nil {
		return failed
	}
	return nil
}

func admitFailure(err error) *outcome {
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		return &outcome{code: exitUsage, err: err, hints: []string{"name one of --nodes, by its URL or as redlatch shows it"}}
	case errors.Is(err, redlatch.ErrRefused):
		return &outcome{code: exitRefused, err: err}
	default:
		return &outcome{code: exitNoQuorum, err: err}
	}
}
