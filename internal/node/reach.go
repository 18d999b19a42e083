package node

import (
	"sync"
	"sync/atomic"
)

// reach is whether a node can be reached, for those who want to be told when that changes.
type reach struct {
	// tell is Options.Reachable.
	tell func(err error)
	// lost, of a Cluster, whose slots have one reach, reports that none of them can be reached.
	lost func() bool
	// away: it cannot be reached.
	away atomic.Bool

	mu  sync.Mutex // guards what follows; nothing is called while it is held
	why error
	// told is what was told last; telling, that somebody is being told.
	told, telling bool
}

// note notes why the node cannot be reached, or with nil that it can, and tells of it if that is
// news, one change after the other: who notes one while another is being told leaves it to that
// goroutine.
func (r *reach) note(why error) {
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
	r := n.options.reach
	if r == nil || r.away.Load() == (why != nil) || n.life.Err() != nil {
		return
	}
	if why == nil || r.lost == nil || r.lost() {
		r.note(why)
	}
}
