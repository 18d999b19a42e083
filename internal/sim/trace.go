package sim

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// trace is what becomes of one attempt's keys, so that it can be told whether a
// holder that takes its lock for lost is right.
type trace struct {
	id string
	on []presence // one a node
	// ended: its holder has given the lock up, and others may take its keys.
	ended bool
	// stood: a quorum of nodes had them at one moment; broken: and at a later one not.
	stood, broken bool
}

// presence is what is known of one attempt's key on one node. What the server lost
// and found again, as with a snapshot, is lost until a step of the holder finds it: a
// holder that hears of the one does not hear of the other.
type presence uint8

const (
	absent  presence = iota // it was never there
	present                 // a step of the holder left or found it there
	gone                    // the server lost it, or told the holder that it has none
	given                   // the holder released it, or left it to another, who took it
)

// follow takes in that a step has been run on n, where before were the holders of name,
// and after are. A Cluster's servers are no quorum. The caller holds world.mu.
func (n *Node) follow(name string, step []string, before, after holders) {
	if n.member != nil {
		return
	}
	w := n.world
	if id := step[1]; after.has(id) {
		t := w.traces[id]
		if t == nil {
			t = &trace{id: id, on: make([]presence, len(w.nodes))}
			w.traces[id] = t
		}
		if !slices.Contains(w.current[name], t) {
			w.current[name] = append(w.current[name], t)
		}
	}
	w.current[name] = slices.DeleteFunc(w.current[name], func(t *trace) (over bool) {
		t.look(w.nodes, name, n, before)
		t.stepped(n.index, step, before, after)
		t.look(w.nodes, name, n, after)
		return t.broken || !slices.Contains(t.on, present)
	})
}

// stepped takes in what a step has done to the key on node i.
func (t *trace) stepped(i int, step []string, before, after holders) {
	was, is := before.has(t.id), after.has(t.id)
	own := step[1] == t.id
	taken := step[0] == script.Acquire && len(step) > 8 && step[8] == t.id // by one to whom it was left
	switch p := &t.on[i]; {
	case was && !is && t.ended && (taken || own && step[0] == release):
		*p = given
	case is && own && *p != given:
		*p = present
	case !is && *p != given && (was || own || taken):
		*p = gone
	}
}

// look finds out what the nodes have by now of name. On node at these have it.
func (t *trace) look(nodes []*Node, name string, at *Node, there holders) {
	having := 0
	for i, n := range nodes {
		has := n.has(name, t.id)
		if n == at {
			has = there.has(t.id)
		}
		if t.on[i] == present && !has {
			t.on[i] = gone
		}
		if t.on[i] == present || t.on[i] == given {
			having++
		}
	}
	quorum := having > len(nodes)/2
	t.stood = t.stood || quorum
	t.broken = t.broken || t.stood && !quorum
}

// has reports whether id has the key of name on the node, or will have when it is up
// again.
func (n *Node) has(name, id string) bool {
	return n.holdersOf(name).has(id)
}

// clock is the node's wall clock.
func (n *Node) clock() time.Time { return n.world.start.Add(epoch + n.wall.at(n.world.Now())) }

// gaveUp notes that the holder id has given its lock up.
func (w *World) gaveUp(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.traces[id]; t != nil {
		t.ended = true
	}
}

// lost reports whether there was a moment, since the holder id was granted the lock of
// name, at which no quorum of nodes had its keys though it had not given them up. willing is
// how many nodes the holder's machine could have had an extension from all the time since then,
// for a validity of that length; 0 if there is no quorum of these.
func (w *World) lost(name, id string, m *Machine, since, validity time.Duration) (lost bool, willing int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.traces[id]
	if t == nil {
		return true, 0
	}
	t.look(w.nodes, name, nil, holders{})
	for i, p := range m.paths {
		// The library tries each twelfth, from the first third on.
		if t.on[i] == present && (p.troubled() == 0 || p.troubled() < since) && p.quick(min(validity/24, w.Judge.NodeTimeout/2)) {
			willing++
		}
	}
	if willing <= len(w.nodes)/2 {
		willing = 0
	}
	return t.broken || !t.stood, willing
}
