package redlatch

import "sync/atomic"

// Stats are a client's counts since Open. They are read one by one, so they may
// differ by what happened meanwhile.
type Stats struct {
	// Acquired counts the locks acquired, and Tries the attempts made for them,
	// those that failed included. Callers may hold in turn by one attempt.
	Acquired, Tries uint64
	// SecondRounds counts the tries whose fencing token had to be confirmed
	// because no quorum of the nodes agreed about it.
	SecondRounds uint64
	// Lost counts the locks that were lost while held.
	Lost uint64
	// Held is how many locks are held now.
	Held int
	// Contacted is how many nodes have answered the first contact, which Open begins.
	Contacted int
	// Quarantined is how many nodes are known not to vote yet, since this client asked for their
	// vote; Unreachable, how many could not be connected to when that was last tried, or
	// have not answered a command for longer than NodeTimeout.
	Quarantined, Unreachable int
}

// counters are what Stats reads that nothing else keeps.
type counters struct{ acquired, tries, lost atomic.Uint64 }

// Stats returns the client's counts. It does not block, and is safe for
// concurrent use.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	held := len(c.held)
	c.mu.Unlock()
	s := Stats{
		Acquired:     c.counters.acquired.Load(),
		Tries:        c.counters.tries.Load(),
		SecondRounds: c.engine.SecondRounds(),
		Lost:         c.counters.lost.Load(),
		Held:         held,
		Contacted:    int(c.contacted.Load()),
	}
	for _, n := range c.nodes {
		if n.InQuarantine() {
			s.Quarantined++
		}
		if n.Unreachable() {
			s.Unreachable++
		}
	}
	return s
}
