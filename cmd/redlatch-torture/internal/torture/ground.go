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

// side is a part of the clients. Each side has a proxy of its own in front of
// every node, so that a node can be cut off from one side only. The workers are divided
// between sides 0 and 1. The probe and all other clients are on the third side.
type side int

const observers side = 2

const sides = 3

// ground has the nodes of a run.
type ground struct {
	kind  string // which servers the nodes are, for the report
	nodes []*place

	// node is the only node if several servers make it up; nodes is empty then.
	// A fault of masters has to hold the token of turns[false], and one of Sentinels that
	// of turns[true].
	node  composed
	turns map[bool]chan struct{}
}

// place is one node and the proxies in front of it.
type place struct {
	name    string
	server  *redistest.Server // nil if the node is the user's
	url     *url.URL          // of the user's node
	durable bool
	wire    *wire // nil without a namespace
	gates   [sides]*gate
	target  string // the address to which the gates lead

	// turn holds one token, which a fault of the node has to hold. It also guards forgot, the time
	// until which the node is out because it may have forgotten locks.
	turn   chan struct{}
	forgot int64
}

// gate is a proxy that counts the faults that make it lose traffic, since two may do so at a time.
type gate struct {
	*redistest.Proxy
	mu    sync.Mutex          // guards holes, and the calls of BlackHole that follow its changes
	holes [redistest.Both]int // by direction
}

// cut has the proxy lose all traffic of a direction if on is set. The traffic passes again when cut
// was called as often without on.
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

// startGround starts the servers and the proxies in front of them. If it fails, it leaves nothing
// behind.
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

// compose starts the servers that make up the one node. The seed decides between Redis and Valkey.
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

// build starts independent servers. Every second one has its data on disk before it answers.
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
			// If both Redis and Valkey are installed, the nodes are of both.
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

// borrow makes places of the user's nodes, which it does not start.
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

// names returns the names of the nodes.
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

// urls returns the addresses of the nodes for a client of a side.
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

// close ends all proxies and all servers that were started. The user's nodes go on.
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
