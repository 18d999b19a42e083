//go:build linux

package torture

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// Work is the process of one worker that uses Redlatch, or the broken lock of the control run.
func Work(orders io.Reader, reports io.Writer) error {
	return worker.Work(orders, reports, func(a worker.Assignment) (worker.Locker, error) {
		if a.Engine != "" {
			return openEngine(a)
		}
		if a.Control {
			return openBroken(a)
		}
		c := config(a.Nodes, a.TTL(), a.Deployment)
		if a.MaxTTLMS > 0 {
			c.MaxTTL = time.Duration(a.MaxTTLMS) * time.Millisecond
		}
		c.Label = fmt.Sprintf("worker %d.%d", a.Worker, a.Life)
		client, err := redlatch.Open(c)
		if err != nil {
			return nil, err
		}
		return locker{client}, nil
	})
}

// openEngine opens a client of an ensemble.
func openEngine(a worker.Assignment) (worker.Locker, error) {
	c := redlatch.Config{TTL: a.TTL(), Label: fmt.Sprintf("worker %d.%d", a.Worker, a.Life)}
	client, err := engine.Engine(a.Engine).Open(c, a.Nodes, rootOf(a.Deployment))
	if err != nil {
		return nil, err
	}
	if a.Control {
		return credulous{locker{client}}, nil
	}
	return locker{client}, nil
}

// locker is Redlatch as a worker.Locker.
type locker struct{ client *redlatch.Client }

func (l locker) Lock(ctx context.Context, name string) (worker.Hold, error) {
	lock, err := l.client.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return lock, nil
}

func (l locker) Close() error { return l.client.Close() }

var _ worker.Hold = (*redlatch.Lock)(nil)

// vouchLimit is how long vouch may take for a deployment in addition to the quarantine of a user's node.
const vouchLimit = 20 * time.Second

// vouch admits the torture's own nodes, which are new and have forgotten nothing. It blocks until a lock
// can be acquired on a user's nodes. It does so for the deployment and, if there are to be neighbours, for
// theirs.
func vouch(ctx context.Context, o *Options, g *ground) error {
	ctx, cancel := context.WithTimeout(ctx, quarantine(o.TTL)+vouchLimit)
	defer cancel()
	deployments := []string{o.prefix}
	if slices.Contains(o.chosen, neighbour) {
		deployments = append(deployments, o.neighbours())
	}
	for _, name := range deployments {
		if err := vouchFor(ctx, o, g, name); err != nil {
			return err
		}
	}
	return nil
}

// vouchFor is vouch for one deployment.
func vouchFor(ctx context.Context, o *Options, g *ground, deployment string) error {
	client, err := redlatch.Open(config(g.urls(observers), o.TTL, deployment))
	if err != nil {
		return err
	}
	defer client.Close() // it holds no lock
	if len(o.Yours) == 0 {
		for _, name := range g.names() {
			// On a busy machine the first tries may not get an answer in time.
			for err := client.Admit(ctx, name); err != nil; err = client.Admit(ctx, name) {
				if !wait(ctx, 50*time.Millisecond) {
					return err
				}
			}
		}
		return nil
	}
	lock, err := client.Lock(ctx, o.prefix+":probe")
	if err != nil {
		return fmt.Errorf("cannot acquire a lock on the nodes before the torture begins: %w", err)
	}
	return lock.Unlock(ctx)
}
