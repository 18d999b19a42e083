//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Size is how many servers an ensemble has.
const Size = 3

const (
	startTime = 60 * time.Second // how long the servers may take until all serve, on a busy machine
	leftTime  = 5 * time.Second  // how long Left may take
)

// Ensemble has the servers of one ensemble of ZooKeeper or one cluster of etcd, on loopback ports.
type Ensemble struct {
	Servers []*Server

	engine  Engine
	dir     string
	ports   []int
	version string
}

// Front returns the address at which the other servers connect to the server i, from 0, which listens
// for them at target. It may be the address of a proxy.
type Front func(i int, target string) (address string, err error)

// Direct is a Front without a proxy.
func Direct(_ int, target string) (string, error) { return target, nil }

// Start starts an ensemble, and blocks until all its servers serve clients. It calls settle, unless that
// is nil, with each server before any of them runs. If it fails, it leaves no process and no file behind.
func Start(ctx context.Context, e Engine, front Front, settle func(i int, s *Server)) (_ *Ensemble, err error) {
	if err := e.Missing(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redlatch-"+string(e)+"-")
	if err != nil {
		return nil, err
	}
	all := &Ensemble{engine: e, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.Close())
		}
	}()
	fronts := make([]string, Size)
	for i := range Size {
		s := &Server{engine: e, id: i + 1, dir: filepath.Join(dir, fmt.Sprint("server", i+1))}
		if s.client, s.peer, s.election, err = all.reserve(); err != nil {
			return nil, err
		}
		if fronts[i], err = front(i, loopback(s.peer)); err != nil {
			return nil, err
		}
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			return nil, err
		}
		all.Servers = append(all.Servers, s)
		if settle != nil {
			settle(i, s)
		}
	}
	if e == Etcd {
		all.configureEtcd(fronts)
	} else if err := all.configureZookeeper(fronts); err != nil {
		return nil, err
	}
	for _, s := range all.Servers {
		if err := s.Start(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := all.Await(ctx); err != nil {
		return nil, err
	}
	version := zookeeperVersion
	if e == Etcd {
		version = etcdVersion
	}
	all.version = version(ctx, all.Servers[0].Addr())
	return all, nil
}

// reserve reserves the ports of one server.
func (e *Ensemble) reserve() (client, peer, election int, err error) {
	for _, port := range []*int{&client, &peer, &election} {
		if *port, err = redistest.ReservePort(); err != nil {
			return client, peer, election, err
		}
		e.ports = append(e.ports, *port)
	}
	return client, peer, election, nil
}

// Kind says in words what the servers are.
func (e *Ensemble) Kind() string {
	if e.engine == Etcd {
		return fmt.Sprintf("%s, a cluster of %d members", e.version, Size)
	}
	return fmt.Sprintf("%s, an ensemble of %d servers", e.version, Size)
}

// states asks all servers at once for their states.
func (e *Ensemble) states(ctx context.Context) []string {
	states := make([]string, len(e.Servers))
	var asking sync.WaitGroup
	for i, s := range e.Servers {
		asking.Go(func() { states[i] = s.state(ctx) })
	}
	asking.Wait()
	return states
}

// Leader returns the index of the leader. It fails unless exactly one server says that it leads.
func (e *Ensemble) Leader(ctx context.Context) (int, error) {
	leader := -1
	for i, state := range e.states(ctx) {
		if state != leading {
			continue
		}
		if leader >= 0 {
			return 0, errors.New("two servers say that they lead")
		}
		leader = i
	}
	if leader < 0 {
		return 0, errors.New("no server leads")
	}
	return leader, nil
}

// Await blocks until one server leads and the others follow it. If ctx is done first, it returns an
// error.
func (e *Ensemble) Await(ctx context.Context) error {
	for {
		leaders, followers, out := 0, 0, 0
		for i, state := range e.states(ctx) {
			switch state {
			case leading:
				leaders++
			case following:
				followers++
			default:
				out = i
			}
		}
		if leaders == 1 && followers == Size-1 {
			return nil
		}
		timer := time.NewTimer(30 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%d servers lead and %d follow, server %d said %q: %w", leaders, followers, out+1, e.Servers[out].said(), context.Cause(ctx))
		}
	}
}

// Left asks the server i, from 0, which of the named locks under root have a key of a holder or of
// a waiter.
func (e *Ensemble) Left(ctx context.Context, i int, root string, names []string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	left := zookeeperLeft
	if e.engine == Etcd {
		left = etcdLeft
	}
	return left(ctx, e.Servers[i].Addr(), root, names)
}

// Close kills all servers and removes their data.
func (e *Ensemble) Close() error {
	var closing sync.WaitGroup
	for _, s := range e.Servers {
		closing.Go(s.Kill)
	}
	closing.Wait()
	for _, port := range e.ports {
		redistest.ReleasePort(port)
	}
	return os.RemoveAll(e.dir)
}
