package node

import (
	"sync"
	"sync/atomic"
)

// Reach knows whether a node can be reached, and tells when that changes.
type Reach struct {
	tell func(err error)
	// lost reports whether none of a Cluster's slots, which share one reach, can be reached. It is
	// nil for a server.
	lost func() bool
	// away: the node cannot be reached.
	away atomic.Bool

	mu  sync.Mutex // guards what follows; nothing is called while it is held
	why error
	// told: what was told last is that the node cannot be reached. telling: a call of tell is under
	// way.
	told, telling bool
}

// NewReach returns the Reach of a node that could be reached so far. It calls tell as Options.Reachable
// is called.
func NewReach(tell func(err error)) *Reach { return &Reach{tell: tell} }

// Note notes why the node cannot be reached, or with nil that it can. It calls tell if that is
// news, for one change after the other: a call of Note during a call of tell leaves its change to
// the goroutine that is in tell.
func (r *Reach) Note(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.why = why
	r.away.Store(why != nil)
	for !r.telling && r.told != (r.why != nil) {
		why = r.why
		r.told, r.telling = why != nil, true
		r.mu.Unlock()
		r.tell(why)
		r.mu.Lock()
		r.telling = false
	}
}

// noteReach notes why the node cannot be reached, or with nil that it has answered.
func (n *Node) noteReach(why error) {
	if v := n.options.view; v != nil && why == nil && v.silent.Load() {
		v.silent.Store(false)
	}
	r := n.options.reach
	if r == nil || r.away.Load() == (why != nil) || n.life.Err() != nil {
		return
	}
	if why != nil && n.options.view != nil {
		n.options.view.refresh(n.options.slotTag)
	}
	if why == nil || r.lost == nil || r.lost() {
		r.Note(why)
	}
}

// Unreachable reports whether the last attempt to connect failed, or the node does not answer.
func (n *Node) Unreachable() bool {
	if n.connected() {
		return n.silence(n.inFlight) > n.options.Patience
	}
	n.link.mu.Lock()
	defer n.link.mu.Unlock()
	return n.link.failure != nil
}

// Unreachable reports whether all slots that were used are unreachable, or no master has answered since all
// were last asked who has which slot: then no vote is sent for a slot, so that nothing is found out about it.
func (c *Cluster) Unreachable() bool {
	if v := c.options.view; v != nil && v.silent.Load() {
		return true
	}
	used := c.used()
	for _, n := range used {
		if !n.Unreachable() {
			return false
		}
	}
	return len(used) > 0
}
