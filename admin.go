package redlatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/redisconn"
)

// Admit vouches for the present run of one of the client's nodes: the node has forgotten no lock
// that may still be held. This is certain for a server that has never been used. The node votes
// from then on, for all clients of the deployment, until it restarts. address is the node's name in
// errors, or its URL in Config.Nodes.
//
// If the node has forgotten a lock after all, a second holder can acquire that lock. Where the node restarts,
// becomes a replica, loses its data or is changed by others between Admit's look at it and its admission, it is not
// admitted, and the error says so. A master of a Cluster that gets or loses slots meanwhile isn't either.
//
// Admit waits for the node, or until ctx is done or the client is closed. The error wraps ErrInvalid
// if the client has no such node, and ErrClosed if it is closed. Otherwise it says why the node
// cannot serve this client, for example because it is a replica or a node of another set, or why it
// was not reached. After an error nothing was changed, unless no answer came: the command may still
// be on its way when the wait ends, and then vouches for what the node has when it arrives. The
// masters of a Cluster are vouched for one by one: those that the error does not name vote, unless it
// says that the masters are not known.
func (c *Client) Admit(ctx context.Context, address string) error {
	return c.atNode(ctx, address, "admit", member.Vouch)
}

// Reset makes one node record the deployment as this client's Config has it: its set of nodes,
// MaxTTL, NoQuarantine and Durable. It replaces whatever is recorded there, even keys of the
// deployment that are of another type. It refuses where a later version of Redlatch, whose locks are
// not this one's, has recorded the deployment there or on another node: nobody here knows its MaxTTL.
// From then on the node refuses clients with other settings, with both settings in the error. To change
// a deployment, reset every node of it; the command redlatch deployment set does.
//
// Locks that are held go on until their validity ends: the node extends none. It votes for nobody
// until the longest MaxTTL and 4 s have passed, be it the new MaxTTL or one that is recorded on a
// node now, unless Admit vouches that no lock is held, or NoQuarantine is set.
//
// Before you change the set of nodes, stop all clients of the old set, on every machine. A majority
// of the old set and a majority of the new one need not have a node in common, so a lock may have
// two holders while old locks are held. The quarantine waits for the locks of clients that died; a
// client that was not stopped goes on locking, and extending what it holds, on nodes that were not reset.
//
// Reset waits for the node, or until ctx is done or the client is closed. It asks the other nodes
// what they have recorded, and goes on without those that have not answered after five times
// NodeTimeout, 500 ms at least. The error wraps ErrInvalid if the client has no such node, and
// ErrClosed if it is closed. Otherwise it says why the node was not reset, and nothing was changed
// unless no answer came. Reset may be repeated, which begins the quarantine anew. A Cluster cannot be
// reset safely, and Reset refuses it: use another Deployment once no lock is held.
func (c *Client) Reset(ctx context.Context, address string) error {
	return c.atNode(ctx, address, "reset", member.Reset)
}

// atNode calls do with the node that has the address. op is what errors call it.
func (c *Client) atNode(ctx context.Context, address, op string, do func(member, context.Context) error) error {
	return c.untilClose(ctx, op, func(ctx context.Context) error { // a node may hang
		n := c.node(address)
		if n == nil {
			return c.noNode(address)
		}
		if err := do(n, ctx); err != nil {
			return fmt.Errorf("%s %s: %w", op, n.Name(), err)
		}
		return nil
	})
}

// node returns the node with this name or URL, or nil.
func (c *Client) node(address string) member {
	names := []string{address}
	if options, name, err := redisconn.Parse(address); err == nil {
		names = append(names, name, options.Address)
	}
	for _, n := range c.nodes {
		if slices.Contains(names, n.Name()) {
			return n
		}
	}
	return nil
}

// noNode returns the error for an address that no node has. It lists the nodes that there are, and
// repeats of address only what certainly holds no secret.
func (c *Client) noNode(address string) error {
	names := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		names[i] = n.Name()
	}
	return invalid("no node is called %q here: use one of %s", redisconn.Redact(address), strings.Join(names, ", "))
}
