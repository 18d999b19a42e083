//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch"
)

// observer asks the nodes for their votes, as any client does, and passes their
// answers on. It holds a lock that nobody else wants and keeps trying to take it a second time.
// Each try fails, and its error has the answer of each node.
type observer struct {
	client  *redlatch.Client
	answers chan<- observation
}

// observation is what the nodes answered to one try.
type observation struct {
	asked time.Time // before the first command was sent
	nodes []redlatch.NodeAnswer
	err   error // why no node's answer is known
}

const (
	observeEvery = 40 * time.Millisecond
	// vouchLimit is how long the admission of all nodes may take.
	vouchLimit = 10 * time.Second
)

// vouch admits all nodes without a quarantine: they are new, and so have forgotten nothing.
func vouch(ctx context.Context, client *redlatch.Client, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, vouchLimit)
	defer cancel()
	for i := range nodes {
		if err := client.Admit(ctx, strconv.Itoa(i+1)); err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
	}
	return nil
}

// watch observes until ctx is done.
func (o observer) watch(ctx context.Context) {
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	var held *redlatch.Lock
	for {
		asked := time.Now()
		lock, err := o.client.TryLock(ctx, watchLock)
		if lock != nil {
			// This is the first try, or the former lock was lost because this process did not
			// run for longer than a TTL.
			held = lock
		}
		seen := observation{asked: asked, err: err}
		if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok {
			seen.nodes, seen.err = failure.Nodes, nil
		}
		select {
		case o.answers <- seen:
		case <-ctx.Done():
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if held != nil {
				_ = held.Unlock(ctx) // nobody waits for the lock, and the servers end next
			}
			return
		}
	}
}
