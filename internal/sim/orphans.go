package sim

import "time"

// Over tells that the call with this label holds and tries nothing any more.
func (w *World) Over(label string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[label] = w.Now()
}

// over returns when the call or the process that made the attempt was over, if it is. The caller
// holds world.mu.
func (w *World) over(id string) (at time.Duration, ok bool) {
	if at, ok = w.ended[labelOf(id)]; !ok {
		at, ok = w.ended[processOf(id)]
	}
	return at, ok
}

// prolong notes that the node gives the key of id its whole life from now on, by a request that
// may be on its way for long. One that was sent long after all was over has no such effect:
// nothing was to be sent. The caller holds world.mu.
func (n *Node) prolong(id string, sent time.Duration) {
	if over, ok := n.world.over(id); !ok || sent <= over+n.world.Judge.NodeTimeout {
		n.prolonged[id] = n.world.Now()
	}
}

// Orphans lists the keys of these names that are on nodes though what they were made for was
// over for longer than longest, the longest TTL, and the drift. Whatever was done for a holder
// afterwards, such as an extension, has given them a longer life than they are to have. It
// does not say so of what a broken connection delivered late.
func (w *World) Orphans(names []string, longest time.Duration) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest += longest/100 + 2*time.Millisecond
	var found []string
	for _, n := range w.nodes {
		if n.server == nil {
			continue
		}
		for _, name := range names {
			for _, id := range n.holdersOf(name).ids() {
				over, ok := w.over(id)
				if since := w.Now() - max(over, n.prolonged[id]); ok && !n.late[id] && since > longest {
					found = append(found, n.Name+" has "+name+" of "+labelOf(id)+", for "+since.String()+" longer than it is of use")
				}
			}
		}
	}
	return found
}

// Endless lists the keys on nodes that have no TTL and are none of the deployment's own, of
// which there is a fixed number.
func (w *World) Endless(own func(key string) bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, n := range w.nodes {
		if n.server == nil {
			continue
		}
		for _, key := range n.server.Endless() {
			if !own(key) {
				found = append(found, n.Name+" has "+key+" for ever")
			}
		}
	}
	return found
}
