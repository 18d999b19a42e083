//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// clean removes the torture's keys from the user's nodes. It does nothing to nodes that the
// torture has started.
func (g *ground) clean(o Options) error {
	if len(o.Yours) == 0 {
		return nil
	}
	errs := make([]error, len(g.nodes))
	for i, p := range g.nodes {
		errs[i] = p.remove(o.everyKey(), o.prefix)
	}
	return errors.Join(errs...)
}

// everyKey returns every key that the workers, the probe or the control run may have left.
func (o *Options) everyKey() (all []string) {
	for _, name := range slices.Concat(o.lockNames(), o.resources(), slices.Collect(maps.Values(o.keys())), o.probeNames()) {
		all = append(append(all, name), node.SideKeys(name)...)
	}
	for _, name := range o.lockNames() {
		if o.takes(worker.Permits) {
			all = append(all, permitKeys(name)...)
		}
	}
	return all
}

// remove deletes the keys, and those of the record of the deployment.
func (p *place) remove(keys []string, deployment string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := p.dial(ctx)
	if err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	defer conn.Close()
	for _, key := range append(node.DeploymentKeys(deployment), keys...) {
		if _, err := conn.Do("DEL", key); err != nil {
			return fmt.Errorf("cleaning up at %s: %w", p.url.Host, err)
		}
	}
	return nil
}
