package redlatch

import (
	"context"
	"fmt"
)

// Reset moves one node to the deployment as this client's Config has it: to its
// set of nodes and to its MaxTTL, whatever others have recorded there. To move a
// deployment, reset every node of the new set. Clients of the old Config are
// refused on the node from then on, with both sets in the error.
//
// A majority of the old set and one of the new need not meet, so a lock may have
// two holders while old ones are held. Before a reset, stop all clients of the
// old Config, on every machine. The locks of those that died are waited for: the
// node votes for nobody until the longest TTL, the old or the new one, and 4 s
// have passed, unless Admit vouches that none is held, or RestartFence is
// FenceOff. A client that was not stopped can acquire nothing on the node, but
// goes on extending what it holds.
//
// Reset waits for the node, or for ctx. The error wraps ErrInvalid when the
// client has no such node; else it says why the node was not reset, and nothing
// was changed unless no answer came. It may be repeated, which begins the wait
// anew.
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
