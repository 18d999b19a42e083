package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// command has the server execute a command that somebody outside of the deployment has sent.
// The caller holds world.mu.
func (n *Node) command(args ...string) bool {
	if n.server == nil || n.hung {
		return false
	}
	n.save()
	reply, err := n.server.Exec(args)
	return err == nil && reply.Text == "OK"
}

// Tamper deletes or fakes keys beside the lock's, from outside. No lock rests on them: it may
// take until they lapse for the lock to be given in order again.
func (n *Node) Tamper(r *rand.Rand, name string) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	next, queue, heartbeats := sideKey("next", name), sideKey("queue", name), sideKey("heartbeats", name)
	px := strconv.Itoa(1 + r.IntN(3000))
	var args []string
	switch r.IntN(10) {
	case 0:
		args = []string{"DEL", next}
	case 1:
		args = []string{"DEL", queue, heartbeats}
	case 2:
		args = []string{"SET", next, "nobody/x/1 95617584000000 ", "PX", px} // in the year 5000
	case 3:
		args = []string{"SET", next, "=nobody/x/1", "PX", px}
	case 4:
		args = []string{"SET", queue, "no queue", "PX", px}
	case 5:
		args = []string{"SET", heartbeats, "no heartbeats", "PX", px}
	case 6:
		args = []string{"ZADD", queue, "0", "nobody/x/1"}
	case 7:
		args = []string{"DEL", admittedKey}
	case 8:
		args = []string{"SET", admittedKey, "nonsense"}
	case 9:
		args = []string{"DEL", recordKey}
	}
	w.History.Add(n.Name, "from outside: %q", args)
	n.disturb(w.Now() + 3*time.Second)
	n.command(args...)
}

// Delete deletes the lock's key from outside. So it may have two holders: a vote is gone on
// which its holder rests.
func (n *Node) Delete(name string) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.History.Add(n.Name, "from outside: DEL %q", name)
	w.Judge.excuse(name)
	n.disturb(w.Now())
	before := n.holdersOf(name)
	n.command("DEL", name)
	n.touched(name, before)
}

// FakeCounter has all nodes count the lock's holders from where no client counts, for d. They
// refuse it until then.
func (w *World) FakeCounter(name string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.History.Add("outside", "the counters of %s are the largest", name)
	w.fakedUntil[name] = w.Now() + d
	w.Judge.forget(name, w.Now()+d)
	for _, n := range w.nodes {
		n.disturb(w.Now() + d)
		n.command("SET", sideKey("token", name), "9223372036854775807", "PX", strconv.FormatInt(d.Milliseconds(), 10))
	}
}

// Faked reports whether the lock's counters were faked at that time or a moment before, which is to
// be refused.
func (w *World) Faked(name string, at time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, ok := w.fakedUntil[name]
	return ok && at < until+2*time.Second
}

// Foreign has a client of another library try to take the lock, by SET NX PX on all nodes at one
// moment, and hold it for d, less than ttl. Whoever it excludes is to be excluded, and the other
// way round.
func (w *World) Foreign(name string, ttl, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foreigners++
	id := fmt.Sprintf("foreigner-%d", w.foreigners)
	w.abandoned[id] = true
	var on []*Node
	admitted := 0
	for _, n := range w.nodes {
		before := n.holdersOf(name)
		if n.command("SET", name, id, "PX", strconv.FormatInt(ttl.Milliseconds(), 10), "NX") {
			on = append(on, n)
			if n.admitted() {
				admitted++
			}
		}
		n.touched(name, before)
	}
	release := func() {
		w.Judge.ForeignOver(name, id)
		for _, n := range on {
			if n.holderOf(name) == id {
				n.command("DEL", name)
				n.touched(name, holders{value: id})
			}
		}
	}
	if len(on) <= len(w.nodes)/2 {
		release()
		return
	}
	w.History.Add("outside", "%s holds %s for %v", id, name, d)
	// Its time runs from now, however long the judge has to wait for a lock whose goroutine stands still.
	w.after(min(d, ttl-ttl/100-2*time.Millisecond), release)
	if admitted > len(w.nodes)/2 { // it does not know that others have forgotten
		w.Judge.ForeignHolds(name, id)
	}
}

// admitted reports whether the node votes as the server that it is.
func (n *Node) admitted() bool {
	said, _ := n.server.Value(admittedKey)
	return strings.Contains(said, n.server.RunID+" "+n.server.ReplicationID)
}

// holderOf is whose the lock's key is on the node, "" for nobody's.
func (n *Node) holderOf(name string) string {
	if n.server == nil {
		return ""
	}
	holder, _ := n.server.Value(name)
	return holder
}

// touched notes what became of the lock's key by somebody from outside.
func (n *Node) touched(name string, before holders) {
	if n.server == nil {
		return
	}
	n.occupy(name)
	n.follow(name, []string{"outside", ""}, before, n.holdersOf(name))
}
