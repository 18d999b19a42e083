package redlatchtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/vote"
)

// forever is a MaxHold that no test outlasts.
const forever = 100 * 365 * 24 * time.Hour

// Lose makes the client of the node that holds the lock name lose it, as if its key had been
// deleted. When Lose returns, the lock's context is done, with ErrLost as the cause, and whoever
// waits for the lock gets it. Of a lock of several names, which is lost as a whole, the keys of the
// other names stay until Unlock, or until the TTL is over. If readers have the lock, all of them
// lose it. A permit has the name that Held has for it, as in pool#3, unless a lock of that name is
// held. If nobody holds the lock, nothing happens. A call to which the grant is still on its way, as
// with Delay, gets the lock all the same, and finds it lost when it is to be renewed.
func (c *Client) Lose(name string) {
	c.t.Helper()
	key, err := hook.ClientOf(c.Client).Key(name)
	if err != nil {
		c.t.Fatal(err)
	}
	keys, queue := c.server.node.Keys(), key
	if _, held := keys[key]; !held {
		for slot := range keys {
			if of, _, _, permit := node.CutSlot(slot); permit && c.nameOf(slot) == name {
				key, queue = slot, of
			}
		}
	}
	k := keys[key]
	ids := append(k.Readers, k.Holder)
	for _, client := range c.server.all() {
		for _, id := range ids {
			hook.ClientOf(client.Client).Lose(id)
		}
	}
	c.server.node.Delete(key, k.Holder, queue)
}

// HoldByAnother makes another client hold the lock name until release is called or the test is
// done. That client renews the lock meanwhile, and has the label "another"; Observer and Logger of
// the config are not told of it. HoldByAnother fails the test if the lock is held already. Calling
// release again does nothing.
func (c *Client) HoldByAnother(name string) (release func()) {
	c.t.Helper()
	lock, err := c.other().Client.TryLock(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return func() { _ = lock.Unlock(context.Background()) } // Lose may have made it lost
}

// Cut makes the node unable to do anything for this client, or able again: TryLock fails with
// ErrNoQuorum, Lock waits, and a lock that is held cannot be renewed and is lost when its validity
// runs out. Other clients of the node go on. What could not be released meanwhile is released
// within about a second of Cut(false), unless its TTL is over.
func (c *Client) Cut(cut bool) { c.link.Cut(cut) }

// Delay makes each of the node's answers to this client come d later from now on; 0 ends that. The
// node executes at once what it is asked. With d above Config.NodeTimeout a try fails with
// ErrNoQuorum, because nobody has heard whether it was granted, and is undone.
func (c *Client) Delay(d time.Duration) { c.link.Delay(d) }

// Held returns who holds which lock now, among all clients of the node, by the locks' names as
// KeyTemplate has them. A lock that is kept for WithMinHold is among them, and a permit by the name
// of all permits and its slot, as in pool#3.
func (c *Client) Held() map[string]redlatch.Holder {
	held := make(map[string]redlatch.Holder)
	for key, k := range c.server.node.Keys() {
		if name := c.nameOf(key); name != "" {
			held[name] = hook.ClientOf(c.Client).Holder(vote.HolderIn(k.Holder)).(redlatch.Holder)
		}
	}
	return held
}

// nameOf returns the name of the lock or the permit with that key, "" if the key is of another KeyTemplate.
func (c *Client) nameOf(key string) string {
	before, after, _ := strings.Cut(c.config.KeyTemplate, "{name}")
	slot := ""
	if _, number, of, permit := node.CutSlot(key); permit {
		key, slot = of, "#"+number
	}
	name, ok := strings.CutPrefix(key, before)
	name, ok2 := strings.CutSuffix(name, after)
	if !ok || !ok2 {
		return ""
	}
	return name + slot
}

// all returns the node's clients.
func (s *server) all() []*Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.clients)
}

// other returns the peer that stands for all other clients.
func (c *Client) other() *Client {
	c.once.Do(func() {
		config := c.config
		config.Label, config.MaxHold = "another", forever
		config.Observer, config.Logger = nil, nil // they are this machine's
		c.another = c.Peer(config)
	})
	return c.another
}
