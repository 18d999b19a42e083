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
// answers on. It holds a lock of its own and tries to take it once more: that
// fails, and the error has each node's answer.
type observer struct {
	client  *redlatch.Client
	answers chan<- observation
}

// observation is what the nodes answered to one try.
type observation struct {
	asked time.Time // before the first command was sent
	nodes []redlatch.NodeAnswer
	err   error // why there is nothing to see
}

const (
	observeEvery = 40 * time.Millisecond
	// vouchLimit bounds the admission of a node that has just started.
	vouchLimit = 10 * time.Second
)

// vouch has all nodes admitted at once: they are new, and have forgotten nothing.
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
			// The first try, or the lock was lost: this process was stopped for
			// longer than a TTL.
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
				_ = held.Unlock(ctx) // the servers end before anybody could wait for it
			}
			return
		}
	}
}
