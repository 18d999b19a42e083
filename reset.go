package redlatch

import (
	"context"
	"fmt"
)

// Reset has one node record the deployment as this client's Config has it: its set of nodes,
// MaxTTL, NoQuarantine and Durable, whatever is recorded there, keys of the deployment that
// are of another type included. Clients with other settings are refused on the node from
// then on, with both settings in the error. To change a deployment, reset every node of it;
// the command redlatch deployment set does.
//
// Locks that are held go on until their validity ends: the node extends none. It votes for
// nobody until the longest MaxTTL, the new one or one that is recorded on a node now, and 4 s
// have passed, unless Admit vouches that no lock is held, or NoQuarantine is set.
//
// Before the set of nodes is changed, stop all clients of the old set, on every machine: a
// majority of the old set and one of the new need not meet, so a lock may have two holders
// while old ones are held. The quarantine waits for the locks of those that died; a client
// that was not stopped goes on extending what it holds on nodes that were not reset.
//
// Reset waits for the node, or for ctx. The error wraps ErrInvalid when the
// client has no such node; else it says why the node was not reset, and nothing
// was changed unless no answer came. It may be repeated, which begins the wait
// anew. A Cluster cannot be reset.
func (c *Client) Reset(ctx context.Context, address string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.Done()
	n := c.node(address)
	if n == nil {
		return c.noNode(address)
	}
	if err := n.Reset(ctx); err != nil {
		return fmt.Errorf("reset %s: %w", n.Name(), err)
	}
	return nil
}
