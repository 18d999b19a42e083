package admission

import (
	"fmt"
	"time"
)

// look is what a client saw of a server, and what it has decided. A client may stall after each step of it, while anything
// else happens. What it then does has the guards of the scripts in internal/script.
type look struct {
	client, node int
	seen         keys
	flushes      string // as the statistics had it
	e            Evidence
	// set: an operator changes the deployment. longest is the longest MaxTTL that was seen for that, former the longest TTL
	// that records tell of, and told the agreements that were seen in them.
	set             bool
	longest, former time.Duration
	told            map[string]bool
	d               Decision
	void            bool        // an operator's word was for something else than is seen
	next            func(*look) // the next step, nil after the last
}

// look has client c look at node i, as internal/node does in inspect.go.
func (w *world) look(c, i int) *look {
	a, s := w.clients[c], w.servers[i]
	k := s.data[a.Deployment]
	l := &look{client: c, node: i, seen: k, flushes: s.compared(), next: w.ask, longest: a.MaxTTL, e: Evidence{
		Server: s.server(), Promoted: s.promoted, Flushed: s.flushed(),
		Uptime: time.Duration(max(0, w.now-s.started-1)) * time.Second, Now: w.now, Note: k.note, Voted: s.dropped, Sync: SyncOtherwise,
	}}
	if s.fsync {
		l.e.Sync = SyncAlways
	}
	l.e.Record, _ = ParseRecord("", k.record)
	w.expected[c][i] = w.expect(a, i)
	return l
}

// ask has the client ask what else it needs, and decide.
func (w *world) ask(l *look) {
	a, s := w.clients[l.client], w.servers[l.node]
	l.next = w.act
	records := []*Record{l.e.Record}
	for j, other := range w.servers {
		if j == l.node {
			continue
		}
		r, _ := ParseRecord("", other.data[a.Deployment].record)
		records = append(records, r)
		switch {
		case w.rng.IntN(4) == 0 && (r == nil || r.FormerMS == 0):
			// It cannot be asked.
		case r == nil:
			l.e.Others.None++
		case r.Agreement(a.Deployment).ID() == a.ID():
			l.e.Others.Same++
			l.e.Others.Longest = max(l.e.Others.Longest, r.LongestTTL())
		default:
			l.e.Others.Differing = &DisagreementError{}
		}
	}
	l.told = make(map[string]bool)
	for _, r := range records {
		if r != nil {
			l.told[r.Agreement(a.Deployment).ID()] = true
			l.longest = max(l.longest, r.Agreement(a.Deployment).MaxTTL)
			l.former = max(l.former, r.LongestTTL())
		}
	}
	l.e.Voted = l.e.Voted || s.scripts[a.Deployment]
	if !s.fsync {
		l.e.Sync = SyncOtherwise
	}
	l.d = Decide(a, l.e)
	if l.void && l.d.Outcome != Admit {
		l.next = nil
	}
	w.log("%d: client %d (%s) has looked at %d (run %d): outcome %d, %v", w.now, l.client, a, l.node, s.run, l.d.Outcome, l.d.Err)
}

// act does what follows from the decision.
func (w *world) act(l *look) {
	l.next = nil
	switch a := w.clients[l.client]; {
	case l.set:
		r := a.Record(l.e.Server)
		r.FormerMS = l.former.Milliseconds()
		if l.e.Record == nil {
			l.longest = max(l.longest, l.former)
		}
		w.quarantine(l, Quarantine(l.longest), r)
	case l.d.Outcome == Begin:
		w.quarantine(l, l.e.Quarantine(a), nil)
	case l.d.Outcome == Admit && !a.NoQuarantine && l.seen == keys{}:
		w.mark(l)
	case l.d.Outcome == Admit:
		w.admit(l)
	}
}

// isStill is as in looked.lua.
func (w *world) isStill(l *look) bool {
	s := w.servers[l.node]
	return text(s.run) == l.e.Run && text(s.repl) == l.e.ReplicationID
}

// quarantine is as in quarantine.lua.
func (w *world) quarantine(l *look, length time.Duration, r *Record) {
	a, s := w.clients[l.client], w.servers[l.node]
	k := s.data[a.Deployment]
	switch {
	case !w.isStill(l):
		return
	case k.record != l.seen.record || k.note != l.seen.note:
		w.again(l)
		return
	}
	note := NewNote(l.e.Server, l.e.Now, length).After(l.seen.note)
	note.Since = w.now
	if r != nil {
		k.record = r.Text()
		for j := range s.grants {
			g := &s.grants[j]
			g.changed = g.changed || g.deployment == a.Deployment
			// It was forgotten before the change, and no node tells what it was given under any more. Where a quorum forgot,
			// that is a majority that forgot everything at once: there is only a word for that (docs/restarts.md). With the
			// quarantine switched off, nodes vote at once, as that page says.
			g.orphan = g.orphan || g.lost && g.deployment == a.Deployment && (a.NoQuarantine || !l.told[g.agreement])
		}
		w.log("%d: %d is set to %s", w.now, l.node, a)
	}
	s.data[a.Deployment] = keys{record: k.record, note: note.Text()}
	w.tell() // its record may have told of another change
}

// mark is as in mark.lua; the client looks again.
func (w *world) mark(l *look) {
	a, s := w.clients[l.client], w.servers[l.node]
	if l.e.Vouched && s.forgot(w.now) {
		// An operator's word is for what the node has when the command arrives (Client.Admit). Of a node that has nothing, that is
		// the mark.
		l.next = nil
		return
	}
	l.seen.admission = fmt.Sprintf("mark %d", w.id())
	if k := s.data[a.Deployment]; k.admission == "" {
		k.admission = l.seen.admission
		s.data[a.Deployment] = k
	}
	w.again(l)
}

// again has the client look again, as others were quicker. What an operator vouches for is what was seen first.
func (w *world) again(l *look) {
	before := *l
	l.next = func(l *look) {
		*l = *w.look(l.client, l.node)
		same := l.e.Run == before.e.Run && l.e.ReplicationID == before.e.ReplicationID && l.flushes == before.flushes && l.seen == before.seen
		l.set, l.e.Vouched, l.void = before.set, before.e.Vouched && same, before.void || before.e.Vouched && !same
	}
}

// admit is as in admit.lua. A script that was sent is there, whatever it does.
func (w *world) admit(l *look) {
	a, s := w.clients[l.client], w.servers[l.node]
	s.scripts[a.Deployment] = true
	k := s.data[a.Deployment]
	switch {
	case !w.isStill(l):
		return
	case k != l.seen || s.compared() != l.flushes:
		w.again(l)
		return
	}
	r := a.Record(l.e.Server)
	r.Void = l.d.Void
	k.admission, k.record = a.ID()+" "+l.e.Run+" "+l.e.ReplicationID, r.Text()
	if !a.NoQuarantine {
		k.note = ""
	}
	s.data[a.Deployment] = k
	w.tell() // its record tells of no change any more
	w.log("%d: client %d (%s) has admitted %d", w.now, l.client, a, l.node)
}

// examine has a client look at a server, and do what follows from it, without a pause or with one.
func (w *world) examine(c, i int) { w.follow(w.look(c, i)) }

// follow has the client that looked go on, until it has done all or stalls.
func (w *world) follow(l *look) {
	for l.next != nil {
		if w.rng.IntN(8) == 0 {
			w.stalled = append(w.stalled, l)
			return
		}
		l.next(l)
	}
}

// resume has a client that has stalled go on.
func (w *world) resume() {
	if n := len(w.stalled); n > 0 {
		j := w.rng.IntN(n)
		l := w.stalled[j]
		w.stalled[j] = w.stalled[n-1]
		w.stalled = w.stalled[:n-1]
		w.log("%d: client %d, which looked at %d at %d, goes on", w.now, l.client, l.node, l.e.Now)
		w.follow(l)
	}
}
