package redlatch

import (
	"slices"

	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/vote"
)

// maxNames bounds the names of one lock: a node does all of them in one step, and serves nobody
// else meanwhile.
const maxNames = 64

// several is what a call for several names has in addition.
type several struct {
	// names has the names in the order in which they were given, each once, and keys their keys.
	names, keys []string
	// number is that of the ticket that the call had in the last queue that it was in.
	number uint64
}

// gather makes the call a call for several names, if there are more than one.
func (c *call) gather() error {
	s := &several{names: []string{c.name}, keys: []string{c.key}}
	for _, name := range *c.settings.also {
		key, err := c.client.config.key(name)
		if err != nil {
			return err
		}
		if !slices.Contains(s.names, name) {
			s.names, s.keys = append(s.names, name), append(s.keys, key)
		}
		if len(s.names) > maxNames {
			return invalid("the lock has more than %d names: lock fewer at once", maxNames)
		}
	}
	if len(s.names) == 1 {
		return nil
	}
	if _, is := c.client.store(); is {
		return errNoSeveral
	}
	if err := c.client.checkSlots(s); err != nil {
		return err
	}
	c.several, c.key = s, slices.Min(s.keys)
	return nil
}

// checkSlots refuses names that a Cluster keeps on several masters.
func (c *Client) checkSlots(s *several) error {
	if !slices.ContainsFunc(c.nodes, func(m member) bool { _, is := m.(*node.Cluster); return is }) {
		return nil
	}
	slot := func(key string) uint16 { return hashslot.Of(hashslot.Tag(key)) }
	for i, key := range s.keys {
		if slot(key) != slot(s.keys[0]) {
			return invalid("the names %q and %q are in different slots of the Cluster: give all names of a lock one hash tag, as in {order-7}/stock and {order-7}/payment",
				s.names[0], s.names[i])
		}
	}
	return nil
}

// without returns the keys except one of them, in an order that is the same for every call.
func (s *several) without(key string) *vote.Keys {
	others := vote.Keys(slices.DeleteFunc(slices.Clone(s.keys), func(k string) bool { return k == key }))
	slices.Sort(others)
	return &others
}

// nameOf returns the name that has key.
func (s *several) nameOf(key string) string { return s.names[slices.Index(s.keys, key)] }

// has reports whether the call is for the lock with this key, alone or as one of several.
func (c *call) has(key string) bool {
	return c.key == key || c.several != nil && slices.Contains(c.several.keys, key)
}

// overlaps reports whether the two calls have a name in common.
func (c *call) overlaps(other *call) bool {
	return c.has(other.key) || other.several != nil && slices.ContainsFunc(other.several.keys, c.has)
}

// wanted returns the name that the call waits for.
func (c *call) wanted() string {
	if c.several == nil {
		return c.name
	}
	return c.several.nameOf(c.key)
}

// named returns e with the name of the lock that each node has for another, where the call is for
// several names or for one of them. Where the node's answer does not say, it is the one that the call
// waits for.
func (c *call) named(e *QuorumError) *QuorumError {
	if e == nil || c.several == nil && c.whole == nil {
		return e
	}
	of := *e // it may be another caller's, too
	of.Nodes = slices.Clone(e.Nodes)
	for i := range of.Nodes {
		if a := &of.Nodes[i]; a.Verdict == VoteHeld && a.Name == "" {
			a.Name = c.wanted()
		}
	}
	return &of
}

// Number implements waitqueue.Caller.
func (c *call) Number() uint64 {
	switch {
	case c.several != nil:
		return c.several.number
	case c.whole != nil:
		return c.whole.several.number
	}
	return 0
}

// follow notes which of several names was in the way of the try for request: the one that most
// nodes say is held. It reports whether that is another name than the one that the call has waited
// for; the call waits for that name from now on.
func (c *call) follow(request vote.Acquire, votes []vote.Answer) (elsewhere bool) {
	if request.Ticket.Number > 0 {
		c.several.number = request.Ticket.Number
	}
	keys := append([]string{request.Key}, *request.With...)
	on := make([]int, len(keys))
	for i, v := range votes {
		if v.Verdict == vote.Held && int(v.Which) < len(keys) {
			c.failure.Nodes[i].Name = c.several.nameOf(keys[v.Which])
			on[v.Which]++
		}
	}
	if c.failure.kind != ErrHeld {
		return false
	}
	c.key = keys[slices.Index(on, slices.Max(on))]
	c.failure.Name = c.wanted()
	return c.key != request.Key
}

// Names returns all names that were locked, each once, in the order in which they were given.
func (l *Lock) Names() []string {
	if l.call.several == nil {
		return []string{l.call.name}
	}
	return slices.Clone(l.call.several.names)
}
