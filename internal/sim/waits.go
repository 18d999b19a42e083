package sim

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Waiting is one call that waits for a lock, or for one of several slots.
type Waiting struct {
	judge       *Judge
	name, label string
	keys        []string // of which it waits for one
	began       time.Duration
}

// recovery is how long a fault is felt by who waits: places in the queue lapse of those who
// were not heard of for script.Patience, those who were called and are gone are each waited for,
// and connections are made anew.
const recovery = script.Patience + 4*script.Grace + 2*connectTimeout

// longestWait is for how long a waiter may do nothing about a lock that is free while nothing is
// wrong: one who was called just as it gave up is waited for.
func (j *Judge) longestWait() time.Duration { return script.Grace + 4*j.NodeTimeout }

// Waits tells that a call begins which waits for a lock.
func (j *Judge) Waits(name, label string) *Waiting { return j.waits(name, label, []string{name}) }

// WaitsForPermit tells that one begins which waits for a permit. Nobody who is ahead of it wants fewer than
// least.
func (j *Judge) WaitsForPermit(name, label string, least int) *Waiting {
	return j.waits(name, label, slotKeys(name, least))
}

func (j *Judge) waits(name, label string, keys []string) *Waiting {
	return &Waiting{judge: j, name: name, label: label, keys: keys, began: j.world.Now()}
}

// Over tells that the call has the lock, or has given up. It is not to have waited for longer
// than there was a cause: somebody had a key of the lock on some node, or something was wrong.
func (w *Waiting) Over() {
	j := w.judge
	now, trouble := j.world.Now(), j.world.troubled()
	since := max(w.began, j.world.occupied(w.keys))
	if trouble > 0 {
		since = max(since, trouble+recovery)
	}
	if waited := now - since; waited > j.longestWait() && j.world.quick(j.NodeTimeout/2) {
		j.Condemn("a wait has a cause: %s waits for %s, which is free since %v", w.label, w.name, waited)
	}
}

// Decent is a patience with which a call asks all nodes at least once.
func (j *Judge) Decent() time.Duration { return 500*time.Millisecond + 4*j.NodeTimeout }

// heldWithin reports whether anybody has held the lock within the last d.
func (j *Judge) heldWithin(name string, d time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.open(name)
	return s.given > 0 && j.world.Now()-s.given < d || slices.ContainsFunc(s.running, func(h *Holding) bool {
		return h.machine.clock.Now().Until(h.lease.Deadline()) > -d
	})
}

// Failed tells that a call for a lock, which began then and had a decent patience, failed because too
// few nodes could be asked or may vote. Once all quarantines are over and all nodes can be reached,
// none does that had the time to ask them since the lock was free.
func (j *Judge) Failed(name, label string, began time.Duration, err error) {
	j.failed(name, label, began, err, []string{name})
}

// FailedPermit tells that one for a permit of k did.
func (j *Judge) FailedPermit(name, label string, k int, began time.Duration, err error) {
	j.failed(name, label, began, err, slotKeys(name, k))
}

func (j *Judge) failed(name, label string, began time.Duration, err error, keys []string) {
	w := j.world
	if slices.ContainsFunc(keys, func(key string) bool { return j.heldWithin(key, j.Decent()) }) {
		return
	}
	if trouble := w.troubled(); (trouble == 0 || began > trouble+recovery) && w.quick(j.NodeTimeout/2) {
		j.Condemn("all nodes vote in the end: %s does not get %s, %v after the last fault: %v", label, name, w.Now()-trouble, err)
	}
}

// occupied is the last moment at which each of the keys was on a node.
func (w *World) occupied(keys []string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.Now()
	for _, key := range keys {
		last := time.Duration(0)
		for _, n := range w.nodes {
			last = max(last, n.occupied(key))
		}
		all = min(all, last)
	}
	return all
}

// occupancy is what a node had of a lock after the last step that was about it.
type occupancy struct {
	at      time.Duration
	held    bool
	expires time.Time // by the node's clock
}

// occupy notes what the node has of the lock. The caller holds world.mu.
func (n *Node) occupy(name string) {
	_, held := n.server.Value(name)
	n.occupancies[name] = occupancy{n.world.Now(), held, n.server.Expires(name)}
}

// occupied is the last moment at which the lock's key was on the node. The caller holds
// world.mu.
func (n *Node) occupied(name string) time.Duration {
	now := n.world.Now()
	if n.server != nil {
		if _, held := n.server.Value(name); held {
			return now
		}
	}
	o := n.occupancies[name]
	if !o.held {
		return o.at
	}
	return max(o.at, now-max(0, n.clock().Sub(o.expires)))
}
