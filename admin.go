package redlatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/redisconn"
)

// Admit vouches for the present run of one of the client's nodes: that it has
// forgotten no lock that may still be held, as is certain for servers that have
// never been used. It votes from then on, for all clients of the deployment,
// until it restarts. address is the node's name in errors, or a URL that leads
// to it.
//
// If the node has forgotten a lock after all, a second holder can acquire it.
//
// Admit waits for the node, or for ctx. The error wraps ErrInvalid when the
// client has no such node; else it says why the node cannot serve this client,
// such as a replica or a node of another set, or why it was not reached. Nothing
// was changed then unless no answer came: the word may still be on its way when ctx ends,
// and goes for what the node has when it arrives.
func (c *Client) Admit(ctx context.Context, address string) error {
	return c.atNode(ctx, address, "admit", member.Vouch)
}

// Reset has one node record the deployment as this client's Config has it: its set of nodes,
// MaxTTL, NoQuarantine and Durable. It replaces whatever is recorded there, even keys of the
// deployment that are of another type. Clients with other settings are refused on the node from
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
// was changed unless no answer came. It may be repeated, which begins the quarantine
// anew. A Cluster is not reset, which could not be done safely: use another Deployment once no
// lock is held.
func (c *Client) Reset(ctx context.Context, address string) error {
	return c.atNode(ctx, address, "reset", member.Reset)
}

// atNode has one node do what op names.
func (c *Client) atNode(ctx context.Context, address, op string, do func(member, context.Context) error) error {
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
	if err := do(n, ctx); err != nil {
		return fmt.Errorf("%s %s: %w", op, n.Name(), err)
	}
	return nil
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

// noNode says that no node is called address. It lists those there are, and of
// address what is certain to hold no secret.
func (c *Client) noNode(address string) error {
	names := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		names[i] = n.Name()
	}
	return invalid("no node is called %q here: use one of %s", redisconn.Redact(address), strings.Join(names, ", "))
}
