package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Cluster is a whole Redis Cluster, which has one vote. Every lock is in one slot, and one master
// at a time has a slot. Each slot that is used is a Node of its own, with an admission of its own,
// which lies in the slot and moves with it.
//
// What the quarantine finds out is about the server that has the slot, and how it came by the slot:
// see shard.go.
type Cluster struct {
	conn    driver.Conn
	options Options

	slots [hashslot.Slots]atomic.Pointer[Node]

	life       context.Context // ends in Cut or Close
	end        context.CancelFunc
	background sync.WaitGroup

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// nodes are the nodes in slots.
	nodes []*Node
}

// NewCluster returns the node behind conn, which it owns. conn sends each command to the master of
// its first key. o.Replicas.Conn may be conn.
func NewCluster(conn driver.Conn, o Options) *Cluster {
	c := &Cluster{conn: conn, options: o}
	c.life, c.end = context.WithCancel(context.Background())
	if o.Clock == nil {
		c.options.Clock = clock.System
	}
	if !o.Agreement.NoQuarantine {
		c.options.view = c.newView()
	}
	c.options.voting, c.options.inFlight = script.ClusterVoting(o.Agreement.Deployment), &mastersInFlight{of: make(map[string]*inFlight)}
	c.options.quarantines, c.options.subscriptions = new(quarantines), new(subscriptions)
	if o.Reachable != nil {
		c.options.reach = &Reach{tell: o.Reachable, lost: c.Unreachable}
	}
	// Its servers come and go, so it is recognised by its name.
	o.Census.report(o.Index, "cluster "+o.Name)
	return c
}

// Name returns the node's name.
func (c *Cluster) Name() string { return c.options.Name }

// slot returns the node for a slot.
func (c *Cluster) slot(slot uint16) *Node {
	if n := c.slots[slot].Load(); n != nil {
		return n
	}
	o := c.options
	o.slotTag = hashslot.TagOf(slot)
	n := New(c.conn, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.slots[slot].CompareAndSwap(nil, n) {
		return c.slots[slot].Load() // n has not begun anything
	}
	c.nodes = append(c.nodes, n)
	return n
}

// used returns the nodes of the slots that have been used.
func (c *Cluster) used() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes)
}

func (c *Cluster) of(key string) *Node { return c.slot(hashslot.Of(hashslot.Tag(key))) }

// Acquire asks the node of the key's slot, as all steps do.
func (c *Cluster) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	return c.of(r.Key).Acquire(ctx, r)
}

// Choose is Acquire for one of several slots.
func (c *Cluster) Choose(ctx context.Context, r vote.Acquire) vote.Answer {
	return c.of(r.Key).Choose(ctx, r)
}

// Extend prolongs the key.
func (c *Cluster) Extend(ctx context.Context, r vote.Extend) vote.Answer {
	return c.of(r.Key).Extend(ctx, r)
}

// Confirm stores the token where the key was granted under a smaller one.
func (c *Cluster) Confirm(ctx context.Context, r vote.Confirm) vote.Answer {
	return c.of(r.Key).Confirm(ctx, r)
}

// Repair gives the key back to its holder.
func (c *Cluster) Repair(ctx context.Context, r vote.Extend) vote.Answer {
	return c.of(r.Key).Repair(ctx, r)
}

// Release deletes the key if it is held under the ID.
func (c *Cluster) Release(ctx context.Context, r vote.Release) vote.Answer {
	return c.of(r.Key).Release(ctx, r)
}

// Take sets the key, under an ID that may be Reused.
func (c *Cluster) Take(ctx context.Context, way Way, r vote.Acquire) vote.Answer {
	return c.of(r.Key).Take(ctx, way, r)
}

// Prolong prolongs the key if it is held under the ID.
func (c *Cluster) Prolong(ctx context.Context, way Way, r vote.Extend) vote.Answer {
	return c.of(r.Key).Prolong(ctx, way, r)
}

// Drop deletes the key if it is held under the ID.
func (c *Cluster) Drop(ctx context.Context, way Way, r vote.Release) vote.Answer {
	return c.of(r.Key).Drop(ctx, way, r)
}

// Query reports who has the key.
func (c *Cluster) Query(ctx context.Context, key string) vote.Answer {
	return c.of(key).Query(ctx, key)
}

// Watch reports who has the key, and has its next change told.
func (c *Cluster) Watch(ctx, until context.Context, key string) (a vote.Answer, watched bool) {
	return c.of(key).Watch(ctx, until, key)
}

// Read reports who has the key, and its counter.
func (c *Cluster) Read(ctx context.Context, key string) vote.Answer { return c.of(key).Read(ctx, key) }

// ReadAll is Read for many keys in one slot.
func (c *Cluster) ReadAll(ctx context.Context, keys []string, watch bool) ([]vote.Answer, vote.Answer) {
	return c.of(keys[0]).ReadAll(ctx, keys, watch)
}

// Enqueue takes a ticket in the wait queue for the key.
func (c *Cluster) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	return c.of(r.Key).Enqueue(ctx, r)
}

// Leave gives up a ticket in the wait queue.
func (c *Cluster) Leave(ctx context.Context, key, waiter string) {
	c.of(key).Leave(ctx, key, waiter)
}

// HasWaiters reports whether anybody is in the wait queue for the key.
func (c *Cluster) HasWaiters(ctx context.Context, key string) (somebody bool, err error) {
	return c.of(key).HasWaiters(ctx, key)
}

// Connect waits until every master was reached and inspected, or ctx is done.
func (c *Cluster) Connect(ctx context.Context) error { return c.each(ctx, (*Node).Connect) }

// Vouch vouches for the present run of every master, and for all slots that it has now. They are
// admitted when they are first used.
func (c *Cluster) Vouch(ctx context.Context) error {
	err := c.each(ctx, (*Node).Vouch)
	for _, n := range c.used() {
		n.admission.forget()
	}
	return err
}

// errNoReset says why, and what to do instead.
var errNoReset = errors.New("the settings of a Cluster are not changed, as its masters would change one by one, each with a vote that needs no other's, " +
	"and one that forgot meanwhile would hear the former from the others, and could give a lock to a second holder: use another Deployment once no lock is held")

// Reset is refused.
func (c *Cluster) Reset(context.Context) error { return errNoReset }

// Reached reports whether any master has ever been looked at.
func (c *Cluster) Reached() bool { return slices.ContainsFunc(c.used(), (*Node).Reached) }

// Cut ends what is under way on the masters, and the connections. Close must follow.
func (c *Cluster) Cut() {
	for _, n := range c.used() {
		n.end()
	}
	c.end()
	cut(c.conn)
}

// Close has what is still to be released tried once more, closes the connections and waits for the work
// in the background.
func (c *Cluster) Close() {
	nodes := c.used()
	for _, n := range nodes {
		n.beginClosing()
	}
	for _, n := range nodes {
		n.finish()
		n.end()
	}
	c.end()
	c.conn.Close()
	for _, n := range nodes {
		n.background.Wait()
	}
	c.background.Wait() // which the nodes add to
}

// each runs f on one slot of every master.
func (c *Cluster) each(ctx context.Context, f func(*Node, context.Context) error) error {
	masters, err := askMasters(ctx, c.conn)
	switch {
	case err != nil:
		return fmt.Errorf("which masters there are is not known: %w", err)
	case len(masters) == 0:
		return errNoMasters
	}
	errs := make([]error, len(masters))
	var all sync.WaitGroup
	for i, m := range masters {
		all.Go(func() {
			slot := m.last()
			if err := f(c.slot(slot), ctx); err != nil {
				errs[i] = fmt.Errorf("the master of slot %d: %w", slot, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// isSlot reports whether the node stands for a slot of a Cluster.
func (n *Node) isSlot() bool { return n.options.slotTag != "" }

// errTopology says what was found, by whether a Cluster was expected.
var errTopology = map[bool]error{
	false: errors.New("the server is part of a Cluster: name it with ?cluster at the end of its URL, or with several addresses"),
	true:  errors.New("the server is not part of a Cluster: name it alone, without ?cluster; over go-redis, give a *redis.Client, as redis.NewFailoverClient returns"),
}
