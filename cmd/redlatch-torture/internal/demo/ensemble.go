//go:build unix

package demo

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
)

var _ node = (*engine.Server)(nil)

// root is the path of all locks in an ensemble.
const root = "/demo"

// open opens a client of the nodes. All clients of the demo are opened here.
func open(e string, nodes []string, label string) (*redlatch.Client, error) {
	if e == "" {
		return redlatch.Open(config(nodes, label))
	}
	return engine.Engine(e).Open(redlatch.Config{TTL: ttl, Label: label}, nodes, root)
}

// startEnsemble starts three servers, and numbers them so that the leader is node 2, which is
// killed first.
func startEnsemble(ctx context.Context, e string) (*ground, error) {
	all, err := engine.Start(ctx, engine.Engine(e), engine.Direct, nil)
	if err != nil {
		return nil, err
	}
	leader, err := all.Leader(ctx)
	if err != nil {
		leader = 0 // the former leader has just been deposed; any server will do
	}
	g := &ground{kind: all.Kind() + "; node 2 leads", ensemble: all}
	for i := range all.Servers {
		g.nodes = append(g.nodes, all.Servers[(leader+engine.Size-1+i)%engine.Size])
	}
	return g, nil
}

// askTime is how long inquiry waits for an answer of a server, which may hang.
const askTime = 300 * time.Millisecond

// inquiry asks the servers of an ensemble whether they serve clients. It reports a server that
// does as one that votes, although only the ensemble as a whole has a vote.
type inquiry struct {
	nodes   []node
	answers chan<- observation
}

// watch asks until ctx is done.
func (q inquiry) watch(ctx context.Context) {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		seen := observation{asked: time.Now(), nodes: make([]redlatch.NodeAnswer, len(q.nodes))}
		asking, cancel := context.WithTimeout(ctx, askTime)
		var all sync.WaitGroup
		for i, n := range q.nodes {
			all.Go(func() {
				seen.nodes[i].Verdict = redlatch.VoteUnknown
				if n.(*engine.Server).Serving(asking) {
					seen.nodes[i].Verdict = redlatch.VoteHeld
				}
			})
		}
		all.Wait()
		cancel()
		select {
		case q.answers <- seen:
		case <-ctx.Done():
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
