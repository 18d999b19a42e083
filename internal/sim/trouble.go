package sim

import "time"

// What is wrong in a world is noted where it is: on the way between a machine and a node. A
// judge that asks why something was slow or failed looks whether there was a reason.

// disturb notes that something is wrong with the way until then. The caller holds world.mu.
func (p *path) disturb(until time.Duration) {
	if until > time.Duration(p.trouble.Load()) {
		p.trouble.Store(int64(until))
	}
}

// disturb notes that something is wrong with the node until then, for all machines. The
// caller holds world.mu.
func (n *Node) disturb(until time.Duration) {
	for _, m := range n.world.machines {
		m.paths[n.index].disturb(until)
	}
}

// disturb notes that something is wrong with the machine until then. The caller holds
// world.mu.
func (m *Machine) disturb(until time.Duration) {
	for _, p := range m.paths {
		p.disturb(until)
	}
}

// troubled is when something was last wrong with the way.
func (p *path) troubled() time.Duration { return time.Duration(p.trouble.Load()) }

// troubled is when something was last wrong anywhere.
func (w *World) troubled() (last time.Duration) {
	for _, m := range w.all {
		for _, p := range m {
			last = max(last, p.troubled())
		}
	}
	return last
}

// StallsFor is how long what was begun before the calm goes on: a goroutine stands still until its
// time is over.
func (w *World) StallsFor() time.Duration {
	last := time.Duration(w.stalledUntil.Load())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		last = max(last, m.stalled)
	}
	return max(0, last-w.Now())
}

// quick reports whether a command and its reply take much less than limit on the way, as
// long as nothing is wrong.
func (p *path) quick(limit time.Duration) bool {
	return 2*(p.usual.Delay+5*p.usual.Jitter) <= limit
}

// quick reports whether they do so on all ways.
func (w *World) quick(limit time.Duration) bool {
	for _, m := range w.all {
		for _, p := range m {
			if !p.quick(limit) {
				return false
			}
		}
	}
	return true
}
