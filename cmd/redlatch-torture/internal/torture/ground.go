//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/redistest"
)

// side is where a client comes from. Each has a proxy of its own in front of
// every node, so that the network can part between them. Workers come from the
// first two; the third is the observers'.
type side int

const observers side = 2

const sides = 3

// ground is the nodes.
type ground struct {
	kind  string // of the servers
	nodes []*place

	// node is the only one where several servers make it up; there are no places
	// then. turns hold one token each: who has it does something to masters
	// (false), or to Sentinels.
	node  composed
	turns map[bool]chan struct{}
}

// place is one node and the ways to it.
type place struct {
	name    string
	server  *redistest.Server // nil where the node is the user's
	url     *url.URL          // of the user's node
	durable bool
	wire    *wire // nil without a namespace
	gates   [sides]*gate
	target  string // where the gates lead

	// turn holds one token: who has it does something to the node, and reads and writes forgot,
	// until when the node is out for what it may have forgotten.
	turn   chan struct{}
	forgot int64
}

// gate is a proxy whose black holes are counted: two faults may want the same.
type gate struct {
	*redistest.Proxy
	mu    sync.Mutex // guards holes, and the proxy's rule that follows them
	holes [redistest.Both]int
}

// cut has all of a direction vanish until it was mended as often.
func (g *gate) cut(way redistest.Direction, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range []redistest.Direction{redistest.Requests, redistest.Replies} {
		if way&d == 0 {
			continue
		}
		before := g.holes[d]
		if on {
			g.holes[d]++
		} else {
			g.holes[d]--
		}
		if (before == 0) != (g.holes[d] == 0) {
			g.BlackHole(d, on)
		}
	}
}

// startGround starts the servers and the ways to them. When it fails, nothing is
// left.
func startGround(ctx context.Context, o Options) (g *ground, err error) {
	g = &ground{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	switch {
	case o.Topology.composed():
		return g, g.compose(ctx, o)
	case len(o.Yours) > 0:
		if err := g.borrow(o.Yours); err != nil {
			return g, err
		}
	default:
		if err := g.build(ctx, o); err != nil {
			return g, err
		}
	}
	for i, p := range g.nodes {
		p.name, p.turn = fmt.Sprintf("n%d", i+1), make(chan struct{}, 1)
		switch {
		case p.wire != nil:
			p.target = p.wire.addr()
		case p.server != nil:
			p.target = p.server.Addr()
		default:
			p.target = p.url.Host
		}
		for s := range p.gates {
			proxy, err := redistest.StartProxy(p.target, redistest.ProxyOptions{Seed: o.Seed + uint64(i*sides+s)})
			if err != nil {
				return g, err
			}
			p.gates[s] = &gate{Proxy: proxy}
		}
	}
	return g, nil
}

// compose starts the servers of one node, whose maker the seed decides.
func (g *ground) compose(ctx context.Context, o Options) error {
	g.turns = map[bool]chan struct{}{false: make(chan struct{}, 1), true: make(chan struct{}, 1)}
	if o.Topology.ensemble() {
		node, err := startEnsemble(ctx, o)
		if err != nil {
			return err
		}
		g.node, g.kind = node, node.kind()
		return nil
	}
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		return redistest.ErrNoServer
	}
	binary := flavors[o.Seed%uint64(len(flavors))]
	if o.Topology == Cluster {
		node, err := startClustered(ctx, o, binary)
		if err != nil {
			return err
		}
		g.node, g.kind = node, node.kind()
		return nil
	}
	node, err := startWatched(ctx, binary)
	if err != nil {
		return err
	}
	g.node, g.kind = node, node.kind()
	return nil
}

// build starts servers. Every second one keeps its word on disk.
func (g *ground) build(ctx context.Context, o Options) error {
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		return redistest.ErrNoServer
	}
	kinds := o.kinds()
	shim := slices.Contains(kinds, clockStep) || slices.Contains(kinds, nudge)
	g.nodes = make([]*place, o.Nodes)
	errs := make([]error, o.Nodes)
	var starting sync.WaitGroup
	for i := range g.nodes {
		p := &place{durable: durable(i)}
		g.nodes[i] = p
		starting.Go(func() {
			// Those of different makers vote together, where there are several.
			settings := redistest.Options{Binary: flavors[i%len(flavors)], ClockShim: shim}
			if p.durable {
				settings.Args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			p.server, errs[i] = redistest.Start(ctx, settings)
			if errs[i] == nil && o.wired(i) && slices.Contains(kinds, namespace) {
				p.wire, errs[i] = newWire(ctx, p.server.Addr())
			}
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range min(len(flavors), len(g.nodes)) {
		if i > 0 {
			g.kind += ", "
		}
		g.kind += filepath.Base(flavors[i]) + " " + g.nodes[i].server.Version()
	}
	return nil
}

// borrow takes the user's nodes.
func (g *ground) borrow(urls []string) error {
	g.kind = "yours"
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return err
		}
		g.nodes = append(g.nodes, &place{url: u})
	}
	return nil
}

// names are those of the nodes.
func (g *ground) names() []string {
	if g.node != nil {
		return []string{composedName}
	}
	var names []string
	for _, p := range g.nodes {
		names = append(names, p.name)
	}
	return names
}

// urls are the nodes as a client of that side is to know them.
func (g *ground) urls(s side) []string {
	if g.node != nil {
		return g.node.urls()
	}
	urls := make([]string, len(g.nodes))
	for i, p := range g.nodes {
		u := url.URL{Scheme: "redis", Host: p.gates[s].Addr(), Fragment: p.name}
		if p.url != nil {
			u.User, u.Path, u.RawQuery = p.url.User, p.url.Path, p.url.RawQuery
		}
		urls[i] = u.String()
	}
	return urls
}

// close ends all that was started. What was the user's goes on.
func (g *ground) close() error {
	if g.node != nil {
		return g.node.close()
	}
	errs := make([]error, len(g.nodes))
	var closing sync.WaitGroup
	for i, p := range g.nodes {
		if p == nil {
			continue
		}
		closing.Go(func() {
			for _, gate := range p.gates {
				if gate != nil {
					gate.Close()
				}
			}
			if p.wire != nil {
				errs[i] = p.wire.close()
			}
			if p.server != nil {
				errs[i] = errors.Join(errs[i], p.server.Close())
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}
