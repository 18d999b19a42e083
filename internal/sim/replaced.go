package sim

import (
	"time"

	"github.com/redlatch/redlatch/internal/sim/server"
)

// Replace has the host that the server runs on stand still for d from the next acquire step on, and with it
// the process that has sent it. When after has gone by, which is less, a replica takes the server's place, on
// a host with another clock. The old server goes on before anybody tells it that it is a master no more:
// it executes what it was sent until then, and is heard.
func (n *Node) Replace(d, after time.Duration) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.halt != nil || n.server == nil || n.hung || w.calmed {
		return
	}
	n.halt = func(m *Machine) { n.standStill(m, d, after) }
}

// standStill has the host of the server and of m's process stand still. The caller holds world.mu.
func (n *Node) standStill(m *Machine, d, after time.Duration) {
	w, old := n.world, n.server
	n.halt, n.hung = nil, true
	n.disturb(w.Now() + d)
	w.History.Add(n.Name, "stands still for %v, and %s with it", d, m.Name)
	late := between(n.rng, 0, 100*time.Millisecond) // which of the two goes on first
	w.schedule.after(0, func() { m.Pause(d+late, false) })
	w.after(after, func() {
		if n.server == old && n.hung {
			n.replaced(d - after)
		}
	})
}

// replaced has a replica take the place of the server, which goes on after left. All are told, but for those
// who stand still. The caller holds world.mu.
func (n *Node) replaced(left time.Duration) {
	w, now := n.world, n.world.Now()
	old, inbox, was := n.server, n.inbox, n.wall
	old.Clock = func() time.Time { return w.start.Add(epoch + was.at(w.Now())) }
	n.lose()
	n.hung, n.inbox, n.fuse, n.standby = false, nil, 0, nil
	n.wall.change(now, was.at(now)-n.apart, was.rate)
	n.startReplica(old.Started.Add(-n.apart)) // it has been up all the time
	w.History.Add(n.Name, "replica promoted, %v behind, with its clock %v behind", now-n.replica.at, n.apart)
	n.apart = -n.apart
	for _, m := range w.machines {
		for _, c := range m.conns {
			if s := c.stream; c.node == n && s != nil && m.paused == nil {
				c.hearReset(s)
			}
		}
	}
	w.after(left, func() {
		w.History.Add(n.Name, "goes on with %d commands, though it was replaced", len(inbox))
		w.lostOn(old)
		for _, l := range inbox {
			reply, err := old.Exec(l.r.args)
			if !l.r.over {
				l.r.reply, l.r.err = reply, err
			}
			w.History.Add(n.Name, "%s: %s", l.stream.conn.machine.Name, exchangeText{l.r.args, l.r.step, reply, err})
			l.stream.answer(l.r)
		}
	})
}

// votes reports whether the node is in no quarantine, as far as is known. The caller holds world.mu.
func (n *Node) votes() bool {
	return n.lostAt < 0 || n.world.Now() > n.lostAt+n.world.Judge.Quarantine+2*time.Second
}

// lostOn notes that the holders of locks whose keys have run out on the server by its own clock may hear
// so, whatever the one has that took its place. The caller holds world.mu.
func (w *World) lostOn(old *server.Server) {
	for name, traces := range w.current {
		there := holdersIn(old.Data(), name, old.Clock())
		for _, t := range traces {
			t.broken = t.broken || !there.has(t.id)
		}
	}
}
