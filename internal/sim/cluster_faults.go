package sim

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
)

// master returns the server that has the part under the greatest epoch.
func (c *Cluster) master(part int) *clusterNode {
	var best *clusterNode
	for _, s := range c.servers {
		if s.has(part) && (best == nil || s.owners[part].epoch > best.owners[part].epoch) {
			best = s
		}
	}
	return best
}

// masters are the servers that have parts.
func (c *Cluster) masters() (all []*clusterNode) {
	for p := range parts {
		if m := c.master(p); m != nil && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// any draws one of the masters.
func (c *Cluster) any() *clusterNode {
	all := c.masters()
	return all[c.rng.IntN(len(all))]
}

// Event brings something upon the Cluster, as it is drawn: most often, upon what has the slot of a key.
func (c *Cluster) Event(key string) {
	w := c.world
	w.mu.Lock()
	p := partOf(hashslot.Of(hashslot.Tag(key)))
	m, to := c.master(p), c.any()
	if m == nil || c.rng.IntN(4) == 0 {
		m, p = c.any(), c.rng.IntN(parts)
	}
	d, lot := around(c.rng, 2*time.Second), c.rng.IntN(17)
	if c.rng.IntN(2) == 0 {
		d = between(c.rng, 0, 2*w.Judge.Quarantine)
	}
	lost, pace := c.rng.IntN(4) > 0, around(c.rng, 150*time.Millisecond)
	amid, then := between(c.rng, 0, 8*pace), c.rng.IntN(6)
	var stop *interruption
	if c.rng.IntN(2) == 0 {
		stop = m.interrupt()
	}
	w.mu.Unlock()
	stop.wait()
	defer stop.end()
	switch lot {
	case 0, 1:
		m.node.Hang(d)
	case 2:
		m.node.Crash(d/8, lost, 0)
	case 3:
		m.leave(d)
	case 4, 5:
		c.locked(func() { c.failOver(m, lost) })
	case 6: // as Redis does it: the master is not there
		m.node.Hang(d)
		w.after(min(d, time.Second), func() { c.failOver(m, lost) })
	case 7:
		m.leave(d)
		w.after(min(d, time.Second), func() { c.failOver(m, lost) })
	case 8, 9, 10, 11:
		c.locked(func() { c.move(p, to, pace) })
		stop.end()
		time.Sleep(amid)
		switch then {
		case 0:
			m.node.Flush()
		case 1:
			to.node.Flush()
		case 2:
			c.locked(func() { c.failOver(m, lost) })
		case 3:
			m.node.Crash(d/8, lost, 0)
		}
	case 12:
		c.locked(func() { c.give(p, to) })
	case 13:
		m.node.Flush()
	case 14:
		c.locked(m.resetStats)
	case 15:
		m.node.FlushScripts(true)
	case 16:
		m.node.Rename()
	}
}

// Calm ends all faults. What is being moved goes on.
func (c *Cluster) Calm() {
	c.world.calm()
	c.locked(func() {
		for _, s := range c.servers {
			s.alone = 0
		}
	})
}

// locked calls f with world.mu held.
func (c *Cluster) locked(f func()) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	f()
}

// leave cuts the server off from the others for d, and not from clients.
func (s *clusterNode) leave(d time.Duration) {
	s.cluster.locked(func() {
		s.cluster.world.History.Add(s.node.Name, "is cut off from the other servers for %v", d)
		s.alone = max(s.alone, s.cluster.world.Now()+d)
	})
}

func (s *clusterNode) resetStats() {
	if s.node.server != nil {
		s.cluster.world.History.Add(s.node.Name, "CONFIG RESETSTAT")
		s.node.server.ResetStats()
	}
}

// failOver has the master's replica take its place, if most masters are there to elect it, who know that then. lost says
// that it lacks the last writes.
func (c *Cluster) failOver(m *clusterNode, lost bool) {
	i := slices.IndexFunc(c.servers, func(s *clusterNode) bool { return s.master == m && s.up() })
	electing, all := 0, c.masters()
	for _, other := range all {
		if other != m && other.up() {
			electing++
		}
	}
	if i < 0 || m.count() == 0 || 2*electing <= len(all) || c.world.calmed {
		return
	}
	r := c.servers[i]
	data, behind := m.node.replica.data, c.world.Now()-m.node.replica.at
	if !lost && m.node.server != nil {
		data, behind = m.node.server.Snapshot(), 0
	}
	c.world.History.Add(r.node.Name, "takes over from %s, %v behind", m.node.Name, behind)
	c.epoch++
	r.master, r.epoch = nil, c.epoch
	for p := range parts {
		if m.has(p) {
			r.owners[p] = ownership{r, c.epoch}
		}
	}
	r.node.server.Load(data)
	r.node.promoted(r.node.server)
	r.node.replica = saved{data, c.world.Now()}
	r.node.lose()
	for _, other := range all {
		if other != m && other.up() {
			other.hear(r, r.owned(), r.epoch)
		}
	}
	r.tell()
}

// give has a master say that it has a part, whose keys are where they are; not in the middle of a move.
func (c *Cluster) give(part int, to *clusterNode) {
	from := c.master(part)
	if from == nil || from == to || from.count() < 2 || from.givesTo[part] != nil || !to.up() || to.master != nil || c.world.calmed {
		return
	}
	c.world.History.Add(to.node.Name, "has part %d of %s, without its keys", part, from.node.Name)
	to.take(part)
}

// take makes the server the one that has the part, under a new epoch.
func (s *clusterNode) take(part int) {
	s.cluster.epoch++
	s.epoch = s.cluster.epoch
	for p := range parts {
		if s.has(p) || p == part {
			s.owners[p] = ownership{s, s.epoch}
		}
	}
	s.takesFrom[part] = nil
	s.node.lose()
	s.tell()
}

// move moves a part key by key, one at each pace.
func (c *Cluster) move(part int, to *clusterNode, pace time.Duration) {
	from := c.master(part)
	if from == nil || from == to || from.count() < 2 || from.givesTo[part] != nil || to.has(part) || to.master != nil || !from.up() || !to.up() || c.world.calmed {
		return
	}
	c.world.History.Add(from.node.Name, "gives part %d to %s", part, to.node.Name)
	from.givesTo[part], to.takesFrom[part] = to, from
	c.moveNext(part, from, to, pace)
}

// moveNext moves the next key of a part, and the part when there is none. It ends where either server has been replaced:
// then an operator gives the move up when all locks have run out.
func (c *Cluster) moveNext(part int, from, to *clusterNode, pace time.Duration) {
	c.world.after(around(c.rng, pace), func() {
		switch {
		case !from.has(part) || from.givesTo[part] != to || to.master != nil || to.takesFrom[part] != from:
			c.world.after(c.world.Judge.Quarantine, func() { c.giveUp(part, from, to) })
			return
		case from.up() && to.up():
			keys := from.keys(part)
			if len(keys) == 0 {
				c.world.History.Add(to.node.Name, "has part %d of %s", part, from.node.Name)
				to.take(part)
				from.hear(to, to.owned(), to.epoch) // it is told, too
				return
			}
			key := keys[c.rng.IntN(len(keys))]
			if taken, ok := from.node.server.Take(key); ok {
				c.world.History.Add(to.node.Name, "has the key %s of %s", key, from.node.Name)
				to.node.server.Put(key, taken)
			}
		}
		c.moveNext(part, from, to, pace)
	})
}

// giveUp ends the move of a part that came to no end.
func (c *Cluster) giveUp(part int, from, to *clusterNode) {
	if from.givesTo[part] == to {
		from.givesTo[part] = nil
	}
	if to.takesFrom[part] == from {
		to.takesFrom[part] = nil
	}
	if to.node.server != nil && !to.has(part) && to.master == nil {
		to.drop(part)
	}
}
