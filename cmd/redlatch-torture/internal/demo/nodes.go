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

// node is one server that votes. Its address stays the same. It is used by one
// goroutine at a time.
type node interface {
	Addr() string
	// Kill ends the process at once.
	Kill()
	// Pause hangs the process: it answers nothing until Resume.
	Pause() error
	Resume() error
	// Close kills the process, hung or not, and returns when it is gone.
	Close() error
}

// forgetful is a node that comes back without its data: RestartEmpty returns when it answers.
type forgetful interface {
	RestartEmpty(ctx context.Context) error
}

// ground is the nodes, and what they are.
type ground struct {
	nodes []node
	kind  string
	// ensemble is what the nodes make up, nil for servers of Redis.
	ensemble *engine.Ensemble
}

// restart starts a node that was killed, a server of an ensemble with its data, which does not
// answer at once.
func (g *ground) restart(ctx context.Context, i int) error {
	if s, ok := g.nodes[i].(*engine.Server); ok {
		return s.Start()
	}
	return g.nodes[i].(forgetful).RestartEmpty(ctx)
}

// startNodes starts an ensemble, or real servers where there are any, else embedded ones. When
// it fails, none is left running.
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

// unfitError says why the real servers here, if any, are not used.
type unfitError struct{ reason string }

func (e *unfitError) Error() string { return e.reason }

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
	// Both have scripts that survive a restart before 7.0, on which the quarantine
	// cannot be built.
	major, _, _ := strings.Cut(servers[0].Version(), ".")
	if v, err := strconv.Atoi(major); err == nil && v < 7 {
		g.close()
		return nil, &unfitError{g.kind + " is older than 7.0, which the quarantine needs"}
	}
	return g, nil
}

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

// urls name the nodes 1, 2, …; those of an ensemble have no names.
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
