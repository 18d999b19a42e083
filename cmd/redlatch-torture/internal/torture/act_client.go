//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// operatorTimeout is how long an operator's client waits for one step. It is long, since on a busy
// machine a step may take long.
const operatorTimeout = 500 * time.Millisecond

// config returns the configuration of a client of the deployment with this MaxTTL. The client is on the
// observers' side, which no split concerns.
func (t *torturer) config(maxTTL time.Duration) redlatch.Config {
	c := config(t.ground.urls(observers), maxTTL, t.options.prefix)
	c.NodeTimeout = operatorTimeout
	return c
}

// operate opens a client, calls do with it and closes it.
func operate(c redlatch.Config, do func(*redlatch.Client) error) error {
	client, err := redlatch.Open(c)
	if err != nil {
		return err
	}
	defer client.Close() // it holds no lock
	return do(client)
}

func nodeNames(nodes []*place) []string {
	names := make([]string, len(nodes))
	for i, p := range nodes {
		names[i] = p.name
	}
	return names
}

// set has the nodes record another MaxTTL of the deployment, and undo has them record the former one.
// In between the nodes refuse all workers, whose MaxTTL is the former one. With setAll one more
// worker comes that has the new MaxTTL. undo ends it some time after the nodes have the former one again.
func (t *torturer) set(ctx context.Context, it item, names []string) (undo func() error, err error) {
	always := context.WithoutCancel(ctx)
	var guest *workerState
	if it.kind == setAll {
		guest, err = t.invite(always, func(a *worker.Assignment) {
			a.TTLMS, a.MaxTTLMS, a.LongHolds = it.delay.Milliseconds(), it.delay.Milliseconds(), 1
		})
		if err != nil {
			return nil, err
		}
	}
	return func() error {
		err := t.reset(always, t.options.TTL, names)
		if guest != nil {
			wait(ctx, 2*it.delay) // until the TTLs of its locks have ended
			err = errors.Join(err, dismissed(guest))
		}
		return err
	}, t.reset(always, it.delay, names)
}

// reset has the nodes record the deployment with this MaxTTL. It tries again until each node has
// confirmed it.
func (t *torturer) reset(ctx context.Context, maxTTL time.Duration, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	return operate(t.config(maxTTL), func(c *redlatch.Client) error {
		for _, name := range names {
			if err := until(ctx, func() error { return c.Reset(ctx, name) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// invite starts one more worker, on the observers' side, which no split concerns. change may change its
// assignment before it starts.
func (t *torturer) invite(ctx context.Context, change func(*worker.Assignment)) (*workerState, error) {
	t.mu.Lock()
	guest := t.workers.guest(t.options, t.invited)
	t.invited++
	t.mu.Unlock()
	change(&guest.assignment)
	err := guest.start(ctx)
	if err == nil {
		err = guest.now().Tell(worker.Go)
	}
	if err != nil {
		workers{guest}.kill()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guests = append(t.guests, guest)
	return guest, nil
}

// dismissed ends a guest in order. It fails if the guest did not end as it should.
func dismissed(guest *workerState) error {
	if said := (workers{guest}).dismiss(); len(said) > 0 {
		return errors.New(strings.Join(said, "; "))
	}
	return nil
}

// meetNeighbour starts a worker of another deployment, which wants the same locks. undo ends it.
func (t *torturer) meetNeighbour(ctx context.Context) (undo func() error, err error) {
	guest, err := t.invite(context.WithoutCancel(ctx), func(a *worker.Assignment) { a.Deployment = t.options.neighbours() })
	if err != nil {
		return nil, err
	}
	return func() error { return dismissed(guest) }, nil
}

// strangeness is a way in which the settings of a client differ from those of the deployment.
type strangeness struct {
	name   string
	change func(*redlatch.Config)
}

// strangers has all ways in which the settings of a stranger differ. The last one needs several nodes.
var strangers = []strangeness{
	{"a shorter MaxTTL", func(c *redlatch.Config) { c.TTL, c.MaxTTL = c.TTL/2, c.MaxTTL/2 }},
	{"a longer MaxTTL", func(c *redlatch.Config) { c.TTL, c.MaxTTL = 2*c.TTL, 2*c.MaxTTL }},
	{"no quarantine", func(c *redlatch.Config) { c.NoQuarantine = true }},
	{"other names", func(c *redlatch.Config) {
		c.Nodes = slices.Clone(c.Nodes)
		for i, url := range c.Nodes {
			address, _, _ := strings.Cut(url, "#")
			c.Nodes[i] = fmt.Sprintf("%s#other%d", address, i)
		}
	}},
	{"other nodes", func(c *redlatch.Config) { c.Nodes = c.Nodes[1:] }},
}

func strangerOf(whom int) strangeness { return strangers[whom%len(strangers)] }

// meetStranger starts a client whose settings are not the deployment's. The client tries to lock, and
// to admit nodes, until undo, and must always be refused. meetStranger first waits until a majority of
// the nodes has a record of the deployment, because a node without one would record the stranger's.
func (t *torturer) meetStranger(ctx context.Context, it item) (undo func() error, err error) {
	ready, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := until(ready, func() error { return t.relyOnRecords(ready) }); err != nil {
		return nil, fmt.Errorf("%w: %w", errLeftOut, err)
	}
	c := t.config(t.options.TTL)
	strangerOf(it.whom).change(&c)
	visiting, end := context.WithCancel(ctx)
	var visit sync.WaitGroup
	var refused int
	var wrong error
	answered := make(chan struct{})
	visit.Go(func() { refused, wrong = t.tryAsStranger(visiting, c, sync.OnceFunc(func() { close(answered) })) })
	return func() error {
		// Other faults may have prevented any answer so far. So the stranger stays until it gets one.
		staying, cancel := context.WithTimeout(ctx, readyLimit)
		defer cancel()
		select {
		case <-answered:
		case <-staying.Done():
		}
		end()
		visit.Wait()
		<-t.records
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refusals += refused
		return wrong
	}, nil
}

// relyOnRecords takes the token of t.records, so that no fault changes the nodes' records. It gives the
// token back and fails if no majority of the nodes has a record now.
func (t *torturer) relyOnRecords(ctx context.Context) error {
	select {
	case t.records <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := t.recorded(ctx)
	if err != nil {
		<-t.records
	}
	return err
}

// recorded returns nil if a majority of the nodes has a record of the deployment. It does not ask a
// Cluster: each master has a record, and only one master has a fault at a time.
func (t *torturer) recorded(ctx context.Context) error {
	key := node.DeploymentKeys(t.options.prefix)[1]
	if t.options.Topology == Cluster {
		return nil
	}
	var dials []func(context.Context) (*redistest.Conn, error)
	for _, p := range t.ground.nodes {
		dials = append(dials, p.dial)
	}
	if node, ok := t.ground.node.(*watched); ok {
		dials = append(dials, func(ctx context.Context) (*redistest.Conn, error) {
			conn, _, err := node.keeper(ctx, key)
			return conn, err
		})
	}
	there := 0
	for _, dial := range dials {
		if exists(ctx, dial, key) {
			there++
		}
	}
	if there <= len(dials)/2 {
		return fmt.Errorf("%d of %d nodes have a record of the deployment", there, len(dials))
	}
	return nil
}

// exists reports whether a server answers in time that it has the key.
func exists(ctx context.Context, dial func(context.Context) (*redistest.Conn, error), key string) bool {
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // ends the wait for a server that hangs
	defer stop()
	reply, err := conn.Do("EXISTS", key)
	return err == nil && reply == int64(1)
}

// strangerPause is how long a stranger waits between two tries.
const strangerPause = 20 * time.Millisecond

// tryAsStranger tries to lock and to admit nodes with the settings c until ctx ends. It counts how
// often it is refused because of the settings, and calls answered each time. It returns an error if it
// acquired a lock or admitted a node. Failures for other reasons do not count.
func (t *torturer) tryAsStranger(ctx context.Context, c redlatch.Config, answered func()) (refused int, err error) {
	client, err := redlatch.Open(c)
	if err != nil {
		answered()
		if errors.Is(err, redlatch.ErrInvalid) {
			return 1, nil
		}
		return 0, err
	}
	defer client.Close() // it holds no lock
	names, nodes := t.options.lockNames(), t.ground.names()
	for wait(ctx, strangerPause) {
		name, node := names[rand.IntN(len(names))], nodes[rand.IntN(len(nodes))]
		trying, cancel := context.WithTimeout(ctx, asked)
		lock, lockErr := client.Lock(trying, name)
		if lockErr == nil {
			err = errors.Join(fmt.Errorf("a client with other settings acquired %s", name), lock.Unlock(context.WithoutCancel(ctx)))
		}
		admitErr := client.Admit(trying, node)
		cancel()
		if admitErr == nil {
			err = errors.Join(err, fmt.Errorf("a client with other settings admitted %s", node))
		}
		for _, e := range []error{lockErr, admitErr} {
			if errors.Is(e, redlatch.ErrInvalid) {
				refused++
				answered()
			}
		}
		if err != nil {
			answered()
			return refused, err
		}
	}
	return refused, nil
}
