//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// clean removes from the user's nodes what was put there, and does nothing to
// our own. What it cannot reach has a TTL.
func (g *ground) clean(o Options) error {
	if len(o.Yours) == 0 {
		return nil
	}
	errs := make([]error, len(g.nodes))
	for i, p := range g.nodes {
		errs[i] = p.remove(append(o.lockNames(), o.probeNames()...), o.prefix)
	}
	return errors.Join(errs...)
}

func (p *place) remove(names []string, deployment string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := p.dial(ctx)
	if err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	defer conn.Close()
	keys := node.DeploymentKeys(deployment)
	for _, name := range names {
		keys = append(append(keys, name), node.SideKeys(name)...)
	}
	for _, key := range keys {
		if _, err := conn.Do("DEL", key); err != nil {
			return fmt.Errorf("cleaning up at %s: %w", p.url.Host, err)
		}
	}
	return nil
}
