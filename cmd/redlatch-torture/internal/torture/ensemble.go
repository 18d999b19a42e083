//go:build linux

package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// electionTime is longer than an election takes, even on a busy machine.
const electionTime = 3 * time.Second

// rootOf returns the path of the locks of a deployment in an ensemble.
func rootOf(deployment string) string { return "/" + deployment }

// kept returns how long the keys of a killed client may stay. In an ensemble they stay until its session
// has ended, which an election may delay.
func (t Topology) kept(ttl time.Duration) time.Duration {
	if t.ensemble() {
		return 2*ttl + electionTime
	}
	return ttl
}

// ensemble is a node that is an ensemble of ZooKeeper or a cluster of etcd. Each server has a host of its
// own on a lan, and so have the workers of each side together.
type ensemble struct {
	*engine.Ensemble
	lan    *lan
	fronts []string // the servers' addresses for clients
	root   string
}

// startEnsemble starts the lan and the servers, and blocks until the servers serve. If it fails, it leaves
// nothing behind.
func startEnsemble(ctx context.Context, o Options) (*ensemble, error) {
	e := &ensemble{lan: newLAN(), root: rootOf(o.prefix)}
	peers := func(i int, target string) (string, error) {
		address, open, err := e.lan.front(host(i))
		if err == nil {
			open(target)
		}
		return address, err
	}
	servers, err := engine.Start(ctx, engine.Engine(o.Topology), peers, func(i int, s *engine.Server) { e.lan.settleServer(s.PID, host(i)) })
	if err != nil {
		e.lan.close()
		return nil, err
	}
	e.Ensemble = servers
	for i, s := range servers.Servers {
		address, err := peers(i, s.Addr())
		if err != nil {
			_ = e.close()
			return nil, err
		}
		e.fronts = append(e.fronts, address)
	}
	return e, nil
}

func (e *ensemble) urls() []string { return e.fronts }

func (e *ensemble) labels() []string { return []string{"server 1", "server 2", "server 3"} }

func (e *ensemble) kind() string { return e.Kind() }

func (e *ensemble) settle(pid int, s side) { e.lan.settle(pid, workersOf(s)) }

func (e *ensemble) close() error {
	err := e.Close()
	e.lan.close()
	return err
}

// run returns "" always: a server that is elected has all locks, so a new leader needs no quarantine.
func (e *ensemble) run(context.Context, int) string { return "" }

func (e *ensemble) ready(ctx context.Context, _ item) error { return e.Await(ctx) }

func (e *ensemble) look(ctx context.Context, names []string) []history.Look {
	leader, err := e.Leader(ctx)
	if err != nil {
		return nil // without a leader nobody knows which keys there are
	}
	left, err := e.Left(ctx, leader, e.root, names)
	if err != nil {
		return nil
	}
	at := worker.Now()
	var looks []history.Look
	for _, name := range names {
		looks = append(looks, history.Look{At: at, Node: leader + 1, Name: name, Found: left[name]})
	}
	return looks
}

func (e *ensemble) begin(ctx context.Context, it item) (hit []int, undo func() error, err error) {
	leader, err := e.Leader(ctx)
	if err != nil { // a busy machine elects another
		return nil, nil, fmt.Errorf("%w: %w", errLeftOut, err)
	}
	one := leader
	if it.kind == killFollower || it.kind == hangFollower || it.kind == minority && !it.hard {
		one = (leader + 1 + it.whom%(engine.Size-1)) % engine.Size
	}
	server := e.Servers[one]
	hit = []int{one}
	all := []int{0, 1, 2}
	switch it.kind {
	case killNode, killFollower:
		server.Kill()
		return hit, server.Start, nil
	case hangNode, hangFollower:
		return hit, server.Resume, server.Pause()
	case restartAll:
		servers := e.Servers
		if err := each(servers, func(s *engine.Server) error { s.Kill(); return nil }); err != nil {
			return all, nil, err
		}
		return all, func() error { return each(servers, (*engine.Server).Start) }, nil
	case minority:
		ways := between(host(one), workersOf(it.side))
		e.lan.hold(ways, true)
		return hit, func() error { e.lan.hold(ways, false); return nil }, nil
	case reset:
		e.lan.cut(e.toClients(false))
		return all, nil, nil
	case lostReply:
		ways := e.toClients(true)
		e.lan.hold(ways, true)
		return all, func() error {
			e.lan.cut(e.toClients(false))
			e.lan.hold(ways, false)
			return nil
		}, nil
	}
	panic(fmt.Sprintf("torture: no such fault of %s: %s", e.Kind(), it.kind))
}

// toClients returns the ways from all clients to all servers, or if replies is set those from the
// servers to the clients.
func (e *ensemble) toClients(replies bool) []way {
	var ways []way
	for i := range e.Servers {
		for _, s := range allSides {
			w := way{workersOf(s), host(i)}
			if replies {
				w = way{w.to, w.from}
			}
			ways = append(ways, w)
		}
	}
	return ways
}
