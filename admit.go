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
// Who vouches for a node that has forgotten a lock lets a second holder take it.
//
// Admit waits for the node, or for ctx. The error wraps ErrInvalid when the
// client has no such node; else it says why the node cannot serve this client,
// such as a replica or a node of another set, or why it was not reached. Nothing
// is changed then.
func (c *Client) Admit(ctx context.Context, address string) error {
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
	if err := n.Vouch(ctx); err != nil {
		return fmt.Errorf("admit %s: %w", n.Name(), err)
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
