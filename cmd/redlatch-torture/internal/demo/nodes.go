//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
	"github.com/redlatch/redlatch/internal/redistest"
)

// node is one server that votes. Its address stays the same when it is restarted. One
// goroutine at a time uses it.
type node interface {
	Addr() string
	// Kill ends the process at once.
	Kill()
	// Pause hangs the process: it answers nothing until Resume.
	Pause() error
	Resume() error
	// Close kills the process, even if it hangs, and returns when it is gone.
	Close() error
}

// forgetful is a node that comes back without its data.
type forgetful interface {
	// RestartEmpty starts the process again without data, and returns when it answers.
	RestartEmpty(ctx context.Context) error
}

// ground has the nodes of a run.
type ground struct {
	nodes []node
	kind  string // which servers the nodes are, for the output
	// ensemble is what the nodes make up together. It is nil for servers of Redis.
	ensemble *engine.Ensemble
}

// restart starts a killed node again: a server of Redis without its data, and a server of an
// ensemble with its data. The latter may not answer yet when restart returns.
func (g *ground) restart(ctx context.Context, i int) error {
	if s, ok := g.nodes[i].(*engine.Server); ok {
		return s.Start()
	}
	return g.nodes[i].(forgetful).RestartEmpty(ctx)
}

// startNodes starts an ensemble if the options name an engine, else real servers if some are
// installed, else embedded ones. If it fails, it leaves no server running.
func startNodes(ctx context.Context, o Options) (*ground, error) {
	if o.Engine != "" {
		return startEnsemble(ctx, o.Engine)
	}
	why := "as asked for by --embedded"
	if !o.Embedded {
		g, err := startReal(ctx, o.Nodes)
		unfit, ok := errors.AsType[*unfitError](err)
		if !ok {
			return g, err
		}
		why = unfit.Error()
	}
	g := &ground{kind: "embedded servers (miniredis, pure Go): " + why}
	errs := make([]error, o.Nodes)
	g.nodes = make([]node, o.Nodes)
	var starting sync.WaitGroup
	for i := range g.nodes {
		starting.Go(func() {
			e, err := startEmbedded(ctx)
			errs[i] = err
			if err == nil {
				g.nodes[i] = e
			}
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// unfitError says why no real servers are used: none is installed, or the installed ones are
// too old.
type unfitError struct{ reason string }

func (e *unfitError) Error() string { return e.reason }

// startReal starts n servers that are installed on this machine. The error is an *unfitError if
// embedded servers should be used instead.
func startReal(ctx context.Context, n int) (*ground, error) {
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		return nil, &unfitError{"no redis-server or valkey-server found in PATH"}
	}
	servers, err := redistest.StartNodes(ctx, n, redistest.Options{Binary: flavors[0]})
	if err != nil {
		return nil, err
	}
	g := &ground{kind: filepath.Base(flavors[0]) + " " + servers[0].Version()}
	for _, s := range servers {
		g.nodes = append(g.nodes, s)
	}
	// The quarantine relies on scripts that end with the process. Before 7.0 they may outlive a restart.
	major, _, _ := strings.Cut(servers[0].Version(), ".")
	if v, err := strconv.Atoi(major); err == nil && v < 7 {
		g.close()
		return nil, &unfitError{g.kind + " is older than 7.0, which the quarantine needs"}
	}
	return g, nil
}

// close ends all nodes and removes their data.
func (g *ground) close() error {
	errs := make([]error, len(g.nodes))
	var closing sync.WaitGroup
	for i, n := range g.nodes {
		if n != nil {
			closing.Go(func() { errs[i] = n.Close() })
		}
	}
	closing.Wait()
	if g.ensemble != nil {
		errs = append(errs, g.ensemble.Close())
	}
	return errors.Join(errs...)
}

// urls returns the addresses of the nodes, for a client. The nodes of Redis get the names 1, 2
// and so on; the servers of an ensemble have no names.
func (g *ground) urls() []string {
	urls := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		if g.ensemble != nil {
			urls[i] = n.Addr()
			continue
		}
		urls[i] = fmt.Sprintf("redis://%s#%d", n.Addr(), i+1)
	}
	return urls
}
