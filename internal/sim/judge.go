package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/script"
)

// Judge watches all holders and says what was broken. It is safe for concurrent
// use.
type Judge struct {
	world *World
	// Outlaw: a clock has been stepped by more than the drift, so that two
	// validities may overlap. Tokens are ordered all the same.
	Outlaw bool
	// NodeTimeout is how long a client waits for a node, and Quarantine how long a node stays out
	// that may have forgotten locks.
	NodeTimeout, Quarantine time.Duration

	mu       sync.Mutex // guards what follows; held while leases and clocks are asked, which ask nobody
	names    map[string]*story
	verdicts []string
	held     int
	inTurn   int
	losses   int // of locks that no quorum had
	replaced int // grants of several names in the place of those of one
}

// story is all that is known of one name.
type story struct {
	running []*Holding
	foreign string // who holds it of those who have no lease, "" for nobody
	// excused is when somebody last deleted its key on a node, forgot when its counters were
	// overwritten.
	excused, forgot time.Duration
	given           time.Duration     // up by a holder, last
	past            []tenure          // by acquisition, the last ones
	tokens          map[uint64]tenure // who was given each, last
}

type tenure struct {
	token    uint64
	acquired time.Duration
	label    string
	reader   bool
}

// Holding is one acquisition, from the moment its caller learns of it.
type Holding struct {
	judge    *Judge
	machine  *Machine
	name     string
	label    string
	lease    hook.Lease
	reader   bool
	token    uint64
	acquired time.Duration
	left     time.Duration // of the validity, when it was acquired
	lapsed   bool          // it was seen after the end of its validity
	// ttl is what the library extends it by in the background, until it was held for longest; 0 for
	// not at all.
	ttl, longest time.Duration
	// ended: it was given up; ranOut: after the lock had run out but for the guard. told: the
	// holder was told that it lost the lock.
	ended, ranOut, told bool
	endedAt             time.Duration
	// excused: somebody has deleted its key on a node, on which it may rest.
	excused bool
}

func newJudge(w *World) *Judge { return &Judge{world: w, names: make(map[string]*story)} }

// Acquired tells that m's process holds name. label is that of the Lock call.
func (j *Judge) Acquired(m *Machine, name, label string, l hook.Lease) *Holding {
	return j.acquired(m, name, label, l, false)
}

// AcquiredShared tells that it does so as a reader.
func (j *Judge) AcquiredShared(m *Machine, name, label string, l hook.Lease) *Holding {
	return j.acquired(m, name, label, l, true)
}

func (j *Judge) acquired(m *Machine, name, label string, l hook.Lease, reader bool) *Holding {
	w := j.world
	h := &Holding{judge: j, machine: m, name: name, label: label, lease: asked{l}, reader: reader, token: l.Token(), acquired: w.Now()}
	began := w.lastAttempt(label)
	left := m.Clock().Now().Until(l.Deadline())
	h.left = left
	w.History.Add(m.Name, "holds %s as %s, token %d, for %v", name, label, h.token, left)
	alive, stopped := m.alive()

	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.names[name]
	if s == nil {
		s = j.open(name)
	}
	j.held++
	if last := len(s.past) - 1; last >= 0 && s.past[last].label == label && s.past[last].token+1 == h.token {
		j.inTurn++
	}
	if left <= 0 && max(stopped, time.Duration(w.stalledUntil.Load())) < began {
		j.condemn("a holder knows: %s gets %s, whose validity ran out %v ago", label, name, -left)
	}
	this := tenure{h.token, h.acquired, label, reader}
	if other, ok := s.tokens[h.token]; ok && this.excludes(other) {
		j.condemn("token order: %s and %s both hold %s with token %d", other.label, label, name, h.token)
	}
	if s.forgot > 0 && began <= s.forgot {
		s.past, s.tokens = nil, make(map[uint64]tenure)
	}
	s.tokens[h.token] = this
	for _, past := range s.past {
		switch {
		case past.token > h.token && this.excludes(past) && (past.acquired < began || !j.Outlaw && time.Duration(w.stalledUntil.Load()) <= began):
			j.condemn("token order: %s holds %s with token %d, after %s held it with token %d", label, name, h.token, past.label, past.token)
		}
	}
	s.past = append(s.past, this)
	if len(s.past) > 64 {
		s.past = s.past[1:]
	}
	h.excused = s.excused > 0 && began <= s.excused
	if alive {
		s.running = append(s.running, h)
	}
	j.check(name, s)
	return h
}

// open begins the story of a name. The caller holds j.mu.
func (j *Judge) open(name string) *story {
	s := j.names[name]
	if s == nil {
		s = &story{tokens: make(map[uint64]tenure)}
		j.names[name] = s
	}
	return s
}

// excuse tells that somebody has deleted the lock's key on a node: whoever holds it now, or
// acquires it before that one's time is over, may not be the only one. A later token is larger all
// the same.
func (j *Judge) excuse(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.open(name)
	s.excused, s.foreign = j.world.Now(), ""
	for _, h := range s.running {
		h.excused = true
	}
}

// excuseAll tells that an operator has vouched for a node that has lost its data since: nothing of
// what it had counts any more.
func (j *Judge) excuseAll() {
	j.mu.Lock()
	names := slices.Collect(maps.Keys(j.names))
	j.mu.Unlock()
	for _, name := range names {
		j.excuse(name)
		j.forget(name, j.world.Now())
	}
}

// forget tells that the lock's counters are overwritten until then: tokens begin anew.
func (j *Judge) forget(name string, until time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.open(name)
	s.past, s.tokens, s.forgot = nil, make(map[uint64]tenure), until
}

// ForeignHolds tells that a client of another library holds the lock from now on.
func (j *Judge) ForeignHolds(name, id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.open(name)
	s.foreign = id
	j.check(name, s)
}

// ForeignOver tells that it does not any more.
func (j *Judge) ForeignOver(name, id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.open(name); s.foreign == id {
		j.check(name, s)
		s.foreign = ""
	}
}

// Ended tells that the holder gives the lock up, before it says so to anybody.
func (h *Holding) Ended() {
	j := h.judge
	j.world.History.Add(h.machine.Name, "ends %s as %s", h.name, h.label)
	j.world.gaveUp(h.lease.HolderID())
	at := h.machine.moment()
	j.mu.Lock()
	defer j.mu.Unlock()
	h.inTime(at)
	h.ended, h.ranOut, h.endedAt = true, h.runOut(), j.world.Now()
	s := j.names[h.name]
	s.given = h.endedAt
	j.check(h.name, s)
	s.drop(h)
}

// runOut reports whether the lock counts as lost by the clock. The caller holds judge.mu.
func (h *Holding) runOut() bool {
	end := h.lease.End() // which waits for a goroutine that stands still while it holds a mutex
	return h.machine.clock.Now().Reached(end)
}

// Lost tells that the holder is told that it lost the lock, at this moment, or by the call
// that gave it up. That is to be true: the lock had run out by the machine's own clocks, or
// there was a moment at which no quorum of nodes had its keys.
func (h *Holding) Lost() {
	j := h.judge
	at := h.machine.moment()
	lost, willing := j.world.lost(h.name, h.lease.HolderID(), h.machine, h.acquired, h.left)
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.told {
		return
	}
	h.inTime(at)
	h.told = true
	if lost && !h.ranOut && !h.runOut() {
		j.losses++
	}
	// It may run out while the call stands still that gives it up, or that tells so.
	stalled := time.Duration(j.world.stalledUntil.Load()) >= h.endedAt
	if !lost && !h.ranOut && (h.ended && !stalled || !h.runOut()) {
		j.condemn("a loss is true: %s is told that it lost %s, which a quorum of nodes had all the time", h.label, h.name)
	}
	if willing > 0 && h.extendable() {
		j.condemn("a loss has a reason: %s lost %s by the clock after %v, though %d of the nodes that it was extended by could be reached all the time",
			h.label, h.name, j.world.Now()-h.acquired, willing)
	}
}

// Renews tells that the library extends the lock by ttl in the background, until it was held for
// longest.
func (h *Holding) Renews(ttl, longest time.Duration) {
	h.judge.mu.Lock()
	defer h.judge.mu.Unlock()
	h.ttl, h.longest = ttl, longest
}

// extendable reports whether the library had the time to extend a lock that has run out. The
// caller holds judge.mu.
func (h *Holding) extendable() bool {
	j, held := h.judge, h.judge.world.Now()-h.acquired
	return (h.ranOut || h.runOut()) && h.ttl > 0 && h.left > h.ttl/2 && held < h.longest-h.longest/10 && !j.Outlaw
}

// Unlocked tells what the call said that gave the lock up.
func (h *Holding) Unlocked(err error) {
	if err == nil {
		return
	}
	j := h.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.told || h.ranOut {
		return // that it was lost is judged by itself
	}
	// The node that keeps the wait queue is waited for for a quarter of the usual time, and may have three
	// steps to answer: an extension under way, the release among others, and then by itself.
	if trouble := j.world.troubled(); (trouble == 0 || trouble < h.acquired) && j.world.quick(j.NodeTimeout/12) {
		j.condemn("a release says what it found: %s unlocks %s, which nothing has disturbed: %v", h.label, h.name, err)
	}
}

func (s *story) drop(h *Holding) {
	for i, r := range s.running {
		if r == h {
			s.running = append(s.running[:i], s.running[i+1:]...)
			return
		}
	}
}

// Gone tells that m's process is about to close its client, or is no more: it
// holds nothing.
func (j *Judge) Gone(m *Machine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.names {
		for i := len(s.running) - 1; i >= 0; i-- {
			if s.running[i].machine == m {
				s.drop(s.running[i])
			}
		}
	}
}

// Look checks the holders of name.
func (j *Judge) Look(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.names[name]; s != nil {
		j.check(name, s)
	}
}

// check says when more than one validity runs. The caller holds j.mu.
func (j *Judge) check(name string, s *story) {
	var before *Holding // the last one looked at whose validity runs
	deadlines := deadlines(s.running)
	var lapsed []*Holding
	for i, h := range s.running {
		now := h.machine.clock.Now()
		left := now.Until(deadlines[i])
		if h.lapsed && left > 0 {
			j.condemn("a lapsed lock is not resurrected: %s holds %s again, for %v", h.label, name, left)
		}
		h.lapsed = left <= 0
		if h.lapsed {
			lapsed = append(lapsed, h)
			continue
		}
		if h.excused {
			continue
		}
		if s.foreign != "" && !j.Outlaw {
			j.condemn("mutual exclusion: %s and %s (for %v still) hold %s", s.foreign, h.label, left, name)
		}
		// Of several with a writer among them, the writer is next to one.
		if before != nil && (!h.reader || !before.reader) && !j.Outlaw {
			j.condemn("mutual exclusion: %s (for %v still) and %s (for %v still) hold %s",
				before.label, before.machine.clock.Now().Until(before.lease.Deadline()), h.label, left, name)
		}
		before = h
	}
	for _, h := range lapsed {
		// A stopped holder asks nothing, and asking is not without effect.
		if !h.machine.halted.Load() && h.lease.Err() == nil {
			j.condemn("a holder knows: %s holds %s, and its validity has run out", h.label, name)
		}
	}
}

// deadlines are those of the holders, at one moment: whoever is asked may be in the way of another
// who stands still.
func deadlines(running []*Holding) []clock.Instant {
	for {
		ends := make([]clock.Instant, len(running))
		for i, h := range running {
			ends[i] = h.lease.Deadline()
		}
		if len(running) < 2 || !slices.ContainsFunc(running, func(h *Holding) bool { return h.lease.Deadline() != ends[slices.Index(running, h)] }) {
			return ends
		}
	}
}

// condemn notes what was broken. The caller holds j.mu.
func (j *Judge) condemn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.verdicts = append(j.verdicts, text)
	j.world.History.Add("JUDGE", "%s", text)
}

// Condemn notes what somebody else found broken.
func (j *Judge) Condemn(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.condemn(format, args...)
}

// Verdicts returns what was broken, in the order in which it was found.
func (j *Judge) Verdicts() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.verdicts
}

// Held returns how many acquisitions there were.
func (j *Judge) Held() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.held
}

// InTurn returns how many of them followed another's token with the next: by one attempt,
// mostly.
func (j *Judge) InTurn() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.inTurn
}

// Losses returns how many holders were told in time that no quorum of nodes had their
// keys any more.
func (j *Judge) Losses() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.losses
}

// executed notes that a node has run a script, and looks at the lock that it
// was about. The caller holds world.mu, which neither a lease nor a clock asks
// for.
func (w *World) executed(n *Node, s *stream, r *request, step []string, reply driver.Reply, err error) {
	n.order(s, r, step, reply, err)
	if r.args[1] == script.Quarantine.Text {
		n.quarantined() // it begins when somebody finds the reason
	}
	if err == nil && len(step) > 1 && step[0] == script.Admit && r.vouched >= 0 && n.lostAt >= r.vouched {
		w.Judge.excuseAll() // an operator's word was given for what is not there any more
	}
	if err == nil && len(step) > 1 && granted(reply) && (step[0] == script.Acquire || step[0] == script.Extend || step[0] == script.Repair) {
		n.prolong(step[1], r.sent)
	}
	w.History.Add(n.Name, "%s: %s", s.conn.machine.Name, exchangeText{r.args, step, reply, err})
	if len(r.args) > 3 && r.args[2] != "0" {
		w.Judge.Look(r.args[3])
	}
}

// granted reports whether a reply says yes: a transfer's has more to say.
func granted(reply driver.Reply) bool {
	return reply.Kind == driver.Int && reply.Int > 0 || reply.Kind == driver.Array && len(reply.Array) == 3 && reply.Array[0].Kind == driver.Int
}

// holders is who has the key that a step is about.
func (n *Node) holders(r *request, step []string) holders {
	if step == nil || len(r.args) < 4 || r.args[2] == "0" {
		return holders{}
	}
	return n.holdersOf(r.args[3])
}

// checkKept checks that a step has not made a key another's that was somebody's
// before: a key changes hands by its release, its expiry or a transfer.
func (n *Node) checkKept(r *request, step []string, before holders, reply driver.Reply, err error) {
	after := n.holders(r, step)
	if len(r.args) > 3 && r.args[2] != "0" {
		n.occupy(r.args[3])
	}
	if err == nil && len(step) > 1 && len(r.args) > 3 {
		n.follow(r.args[3], step, before, after)
		if (n.member == nil || before.readers == nil) && untruthful(step[0], step[1], before, granted(reply)) {
			n.world.Judge.Condemn("a release says what it found: on %s, %s of %s is told %t, and the node had %v", n.Name, step[0], step[1], granted(reply), before)
		}
		n.checkReadersKept(step, before, after)
	}
	if before.value == "" || before.readers != nil || after.value == "" || after.value == before.value || step[0] == script.Admit || len(step) > 8 && step[0] == script.Acquire && step[8] == before.value {
		return
	}
	if r.args[1] == script.Shard.Text || r.args[1] == script.Mark.Text && (n.member != nil || len(before.value) < len(" 0000000000000000")) { // it was no admission, or not to be believed
		return
	}
	n.world.Judge.Condemn("a key is not taken away: on %s, %s of %v replaced %v", n.Name, step[0], after, before)
}

// untruthful reports that a step of id was answered other than what the node had before.
func untruthful(step, id string, before holders, granted bool) bool {
	switch step {
	case release:
		return granted != before.has(id)
	case script.Extend:
		return granted && !before.has(id) // else it may be not admitted
	}
	return false
}

// order checks that nothing of a holder comes after its release, but for what a
// broken connection still delivers.
func (n *Node) order(s *stream, r *request, step []string, reply driver.Reply, err error) {
	if len(step) > 1 && step[0] == release && err != nil && n.world.Now()-r.sent > connectTimeout {
		n.late[step[1]] = true // the node lacks the script, and nobody waits any more who would send it
	}
	if err != nil || len(step) < 2 || step[0] != release && !granted(reply) {
		return
	}
	switch {
	case step[0] == release:
		// One that was left a key may be there before its holder's own commands.
		if strings.HasPrefix(labelOf(step[1]), s.conn.machine.Name+"-") {
			n.released[step[1]] = true
		}
	case (step[0] == script.Acquire || step[0] == script.Repair) && s.broken && n.released[step[1]]:
		n.late[step[1]] = true
	case step[0] == script.Confirm || step[0] == script.Admit || step[0] == script.Enqueue || n.late[step[1]]:
	case n.released[step[1]]:
		n.world.Judge.Condemn("nothing is left behind: on %s, %s of %s comes after its release", n.Name, step[0], step[1])
	}
}
