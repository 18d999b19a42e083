package admission

import (
	"fmt"
	"slices"
	"time"
)

// slotLook is what a client saw of a slot and of its master, and what it has decided. A client may stall after each step of
// it, while anything else happens. Each step goes to the master that has the key that it is about, with the guards of the scripts
// in internal/script.
type slotLook struct {
	client  int
	slot    uint16
	master  int // the number of the master that has the slot
	homes   [3]uint16
	masters [3]bool // which are masters, as they have slots
	run     int
	said    string // by the admission key, but for its time
	key     string
	record  string
	flushes string
	cleared bool
	e       Evidence
	d       Decision
	word    *slotLook       // for which an operator vouched, nil where none did
	void    bool            // that was for something else than is seen
	next    func(*slotLook) // the next step, nil after the last
}

// at returns the process that has one key of a slot: while that is moved, either of two.
func (w *clusterWorld) at(slot uint16, has func(slotData) bool) *shardServer {
	s := w.masters[w.owner[slot]]
	if to := w.moving[slot]; to != 0 && !has(s.data[slot]) {
		return w.masters[to-1]
	}
	return s
}

func hasKey(d slotData) bool    { return d.key != "" }
func hasRecord(d slotData) bool { return d.record != "" }

// said is what an admission key says, but for the time at its end.
func said(key string) string { return key[:max(0, len(key)-17)] }

// look has a client ask which masters there are, the first step of lookAtSlot in internal/node.
func (w *clusterWorld) look(client int, slot uint16) *slotLook {
	l := &slotLook{client: client, slot: slot, master: w.owner[slot]}
	s := w.at(slot, hasKey)
	if s != w.masters[l.master] {
		return l // the slot is being moved
	}
	l.run = s.run
	held, _ := w.held(l.master)
	l.e.Shard = &Shard{Slot: slot, Held: held, Epoch: s.epoch}
	for j := range w.masters {
		held, home := w.held(j)
		l.homes[j], l.masters[j] = home, held != nil
		if held != nil {
			l.e.Shard.Masters++
		}
	}
	l.next = w.readKey
	return l
}

// readKey reads the slot's admission key.
func (w *clusterWorld) readKey(l *slotLook) {
	s := w.at(l.slot, hasKey)
	l.next = w.readRecord
	l.key, l.flushes, l.cleared = s.data[l.slot].key, s.compared(), s.cleared
	l.said = said(l.key)
	if s.run != l.run || l.e.Vouched && w.isHeld() { // an operator's word is for what is seen first
		l.next = nil
	}
}

// readRecord reads the record of the master, and looks at its server.
func (w *clusterWorld) readRecord(l *slotLook) {
	home := l.homes[l.master]
	s := w.at(home, hasRecord)
	if l.next = w.ask; s.run != l.run || s.compared() != l.flushes {
		l.next = nil
		return
	}
	l.record = s.data[home].record
	l.e.Server, l.e.Promoted, l.e.Flushed, l.e.Flushes, l.e.Now = s.server(), s.promoted, s.flushed(), int64(s.flushes), w.clock(s)
	l.e.Uptime = time.Duration(max(0, w.now-s.started-1)) * time.Second
	l.e.Record, _ = ParseRecord("", l.record)
	w.expected[l.client][l.slot] = w.a.ID() + " " + l.e.Run + " " + l.e.ReplicationID
	if before := l.word; before != nil {
		gone := before.record != "" && l.record == ""
		l.e.Vouched = l.e.Run == before.e.Run && l.e.ReplicationID == before.e.ReplicationID && l.flushes == before.flushes && !gone &&
			l.e.Shard.Epoch == before.e.Shard.Epoch && slices.Equal(l.e.Shard.Held, before.e.Shard.Held) && l.said == before.said
		l.void = !l.e.Vouched
	}
}

// ask asks the other masters, and decides.
func (w *clusterWorld) ask(l *slotLook) {
	l.next = w.register
	var others []Master
	for j := range w.masters {
		if j == l.master || !l.masters[j] {
			continue
		}
		if w.rng.IntN(5) == 0 && !w.allAnswer { // it cannot be asked
			others = append(others, Master{})
			continue
		}
		other := w.at(l.homes[j], hasRecord)
		record, _ := ParseRecord("", other.data[l.homes[j]].record)
		if record == nil {
			l.e.Others.None++
		} else {
			l.e.Others.Same++
		}
		others = append(others, Master{Server: other.server(), Now: w.clock(other), Answered: true, Flushed: other.flushed(), Flushes: int64(other.flushes), Record: record})
	}
	l.e.Came(w.a, l.key, others)
	l.d = Decide(w.a, l.e)
	w.log("%d: client %d has looked at slot %d at %d (run %s): outcome %d, %v", w.now, l.client, l.slot, l.master, l.e.Run[36:], l.d.Outcome, l.d.Err)
	if l.d.Outcome == Refuse || l.d.Unread || l.void && l.d.Outcome != Admit {
		l.next = nil
	}
}

// isStill is as in looked.lua.
func (l *slotLook) isStill(s *shardServer) bool {
	return text(s.run) == l.e.Run && text(s.repl) == l.e.ReplicationID
}

// register is as in shard.lua.
func (w *clusterWorld) register(l *slotLook) {
	l.next = w.act
	r := w.a.Record(l.e.Server)
	if !l.e.Renew(r) {
		return
	}
	if l.e.Vouched && l.record == "" && w.isHeld() {
		// An operator's word is for what the master has when the command arrives (Client.Admit).
		l.next = nil
		return
	}
	home := l.homes[l.master]
	s := w.at(home, hasRecord)
	at := s.data[home]
	if !l.isStill(s) || at.record != l.record || s.compared() != l.flushes {
		l.next = nil
		return
	}
	if r.Since == l.e.Now {
		r.Since = w.clock(s)
	}
	for j := range r.Slots {
		if r.Slots[j].Since == l.e.Now {
			r.Slots[j].Since = w.clock(s)
		}
	}
	at.record, l.record = r.Text(), r.Text()
	s.data[home] = at
}

// act does what follows from the decision.
func (w *clusterWorld) act(l *slotLook) {
	l.next = nil
	switch {
	case l.d.Outcome != Admit && l.e.Shard.Stale:
		w.mark(l)
	case l.d.Outcome == Admit && l.said == "" && l.cleared:
		w.mark(l)
		l.next = w.again
	case l.d.Outcome == Admit:
		w.admit(l)
	}
}

// again has the client look again. What an operator vouches for is what was seen first.
func (w *clusterWorld) again(l *slotLook) {
	before := *l
	*l = *w.look(l.client, l.slot)
	l.word = before.word
	if before.e.Vouched {
		l.word = &before
	}
}

// mark is as in mark.lua.
func (w *clusterWorld) mark(l *slotLook) {
	s, key := w.at(l.slot, hasKey), fmt.Sprintf("mark %d %016d", w.id(), 0)
	if at := s.data[l.slot]; said(at.key) == l.said {
		at.key = key
		s.data[l.slot] = at
	}
	l.said = said(key)
}

// admit is as in admit.lua. A script that was sent is there, whatever it does.
func (w *clusterWorld) admit(l *slotLook) {
	s := w.at(l.slot, hasKey)
	s.scripts = true
	at := s.data[l.slot]
	if !l.isStill(s) || s.compared() != l.flushes || said(at.key) != l.said || s.epoch != l.e.Shard.Epoch || w.moving[l.slot] != 0 {
		return
	}
	at.key = fmt.Sprintf("%s %s %s %016d", w.a.ID(), l.e.Run, l.e.ReplicationID, w.clock(s)*1_000_000)
	s.data[l.slot] = at
	w.log("%d: client %d has admitted slot %d at run %d", w.now, l.client, l.slot, s.run)
}

// examine has a client look at a slot, and do what follows from it, without a pause or with one.
func (w *clusterWorld) examine(client int, slot uint16) { w.follow(w.look(client, slot)) }

// follow has the client that looked go on, until it has done all or stalls.
func (w *clusterWorld) follow(l *slotLook) {
	for l.next != nil {
		if !w.allAnswer && w.rng.IntN(16) == 0 {
			w.stalled = append(w.stalled, l)
			return
		}
		l.next(l)
	}
}

// resume has a client that has stalled go on.
func (w *clusterWorld) resume() {
	if n := len(w.stalled); n > 0 {
		j := w.rng.IntN(n)
		l := w.stalled[j]
		w.stalled[j] = w.stalled[n-1]
		w.stalled = w.stalled[:n-1]
		w.log("%d: client %d, which looked at slot %d, goes on", w.now, l.client, l.slot)
		w.follow(l)
	}
}
