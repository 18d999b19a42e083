package sim

// Flush deletes all keys.
func (n *Node) Flush() {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server != nil {
		w.History.Add(n.Name, "FLUSHALL")
		n.lose()
		n.server.FlushAll()
	}
}

// FlushScripts empties the script cache. amid: the keys may go, too, while it is being admitted again.
func (n *Node) FlushScripts(amid bool) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server != nil {
		w.History.Add(n.Name, "SCRIPT FLUSH")
		n.disturb(w.Now())
		n.server.FlushScripts()
		if flushed := n.server; amid && n.fuse == 0 && n.rng.IntN(2) == 0 {
			n.soon(1+n.rng.IntN(6), func() {
				if n.server == flushed && !w.calmed {
					w.History.Add(n.Name, "FLUSHALL")
					n.lose()
					flushed.FlushAll()
				}
			})
		}
	}
}
