package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/sim/server"
)

// Durability is what a node's data survives.
type Durability uint8

// The kinds of durability.
const (
	Memory   Durability = iota // nothing: it comes up empty
	Snapshot                   // an RDB file, some while old
	EverySec                   // an append-only file that lacks the last second
	Always                     // an append-only file, synced before each reply
	durabilities
)

func (d Durability) String() string {
	return [...]string{"memory", "snapshot", "everysec", "always"}[d]
}

// fsync is the policy of the append-only file, "" where there is none.
func (d Durability) fsync() string {
	switch d {
	case EverySec:
		return "everysec"
	case Always:
		return "always"
	}
	return ""
}

// Node is one address at which a server answers, and the machine it runs on.
type Node struct {
	Name       string
	index      int
	world      *World
	durability Durability
	replicated bool
	// every is how old the snapshot, and how far behind the replica, may be.
	every, lag time.Duration

	// Guarded by world.mu.
	rng    *rand.Rand
	wall   timeline
	server *server.Server // nil while it is down
	hung   bool
	inbox  []letter // arrived while it hung, or was stopped by an interruption
	disk   saved
	// restored is what the server came up with.
	restored server.Data
	// released are the holder ids that a release was executed for.
	released map[string]bool
	// late are those that got the key here later, by what a broken connection still delivered.
	late map[string]bool
	// prolonged has when a holder id's key was last given its whole life.
	prolonged map[string]time.Duration
	// occupancies are what was left of each lock by the last step about it.
	occupancies map[string]occupancy
	// listening says over which stream each of listeners, in order, hears.
	listening map[*subscription]*stream
	listeners []*subscription
	replica   saved
	// lostAt is when its data was last other than what it had a moment before, -1 for never.
	lostAt time.Duration
	// vouching is how many operators are about to vouch for it, the first since vouchedAt.
	vouching  int
	vouchedAt time.Duration
	// standby is the process that the server took the place of, or that will take its; nil before
	// that was asked for.
	standby *server.Server
	// backup is for those who restore what was.
	backup saved
	runs   int
	// fuse, if not 0, counts executed commands down to a crash.
	fuse   int
	onFuse func()

	// member is the server's part in a Cluster, nil where there is none.
	member *clusterNode

	// halt is what has the node's host stand still, nil where nothing does. apart is how far the
	// clock of the host that takes its place is behind.
	halt  func(m *Machine)
	apart time.Duration

	// Of the plan alone: when the clock was last stepped by little, and how far
	// it has been stepped by much.
	twitched, stepped time.Duration
}

// letter is a request and where it came from.
type letter struct {
	stream *stream
	r      *request
}

// saved is a copy of the keys as they were at some moment.
type saved struct {
	data server.Data
	at   time.Duration
}

// NewNode adds a node whose wall clock runs at rate and is off by wall. age is
// how long its server has been up; replicated, that it has a replica.
func (w *World) NewNode(d Durability, replicated bool, rate float64, wall, age time.Duration) *Node {
	i := len(w.nodes)
	n := &Node{
		Name: fmt.Sprintf("n%d", i+1), index: i, world: w, durability: d, replicated: replicated, rng: w.Rand("node", i),
		every: persistence(d), lag: time.Second, released: make(map[string]bool), late: make(map[string]bool), lostAt: -1, occupancies: make(map[string]occupancy), prolonged: make(map[string]time.Duration),
	}
	n.wall.change(w.Now(), wall, rate)
	n.start(nil)
	n.server.Started = n.server.Started.Add(-age)
	w.nodes = append(w.nodes, n)
	return n
}

// Complete reports whether the node has lost nothing for as long as a lock of that TTL lives, so
// that an operator may vouch for it.
func (n *Node) Complete(ttl time.Duration) bool {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return n.server != nil && (n.lostAt < 0 || w.Now() > n.lostAt+ttl+ttl/50+2*time.Second)
}

// Vouch has an operator vouch for the node, by call.
func (n *Node) Vouch(call func() error) error {
	w := n.world
	w.mu.Lock()
	if n.vouching++; n.vouching == 1 {
		n.vouchedAt = w.Now()
	}
	w.mu.Unlock()
	err := call()
	w.mu.Lock()
	n.vouching--
	w.mu.Unlock()
	return err
}

// RunID is that of the server, "" while it is down.
func (n *Node) RunID() string {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server == nil {
		return ""
	}
	return n.server.RunID
}

// Index is the node's place among the nodes.
func (n *Node) Index() int { return n.index }

// start brings a server up with these keys.
func (n *Node) start(data server.Data) {
	s := n.process()
	s.Load(data)
	n.listening, n.listeners = make(map[*subscription]*stream), nil
	n.server, n.restored = s, data
}

// process returns an empty server process of the node that has just come up. The caller holds
// world.mu.
func (n *Node) process() *server.Server {
	n.runs++
	s := server.New(fmt.Sprintf("%040x", (n.index+1)<<16|n.runs), n.clock)
	s.Edit = n.world.Mutation.edit()
	s.AppendFsync = n.durability.fsync()
	if n.replicated {
		s.Replicas = 1
	}
	s.Publish = n.publish
	if n.member != nil {
		n.member.describe(s)
	}
	return s
}

// receive is the arrival of a request. The caller holds world.mu.
func (n *Node) receive(s *stream, r *request) {
	switch {
	case n.server == nil || n.server != s.server || s.closed:
		// Nobody knows of this connection any more.
		s.closed = true
		s.conn.hearReset(s)
	case n.hung, n.member != nil && n.member.interruption.holds(r):
		n.inbox = append(n.inbox, letter{s, r})
	case n.halt != nil && len(r.acquiring()) > 0 && n.votes():
		n.inbox = append(n.inbox, letter{s, r})
		n.halt(s.conn.machine)
	default:
		n.execute(s, r)
	}
}

// execute runs a request on the node's server. The caller holds world.mu.
func (n *Node) execute(s *stream, r *request) {
	w := n.world
	n.save()
	if r.sub != nil {
		n.subscribe(s, r)
	}
	step := r.step
	recorded, writes := record(n.server), n.server.Writes
	settled := s.conn.machine.Stranger && w.settled()
	reply, err := driver.Reply{}, error(nil)
	switch {
	case r.steps != nil:
		step = nil // they are judged one by one
		if r.allOrNone {
			reply, err = n.executeTogether(s, r)
		} else {
			reply, err = n.executeApart(s, r)
		}
	case len(step) > 0 && step[0] == script.Slot:
		reply, err = n.executeSlot(s, r)
	default:
		one := n.forSlot(r)
		before := n.holders(one, step)
		reply, err = n.run(r)
		if step != nil {
			n.checkKept(one, step, before, reply, err)
			w.executed(n, s, one, step, reply, err)
		}
	}
	n.watchRecord(s.conn.machine, r.step, recorded, settled, writes)
	if !r.over {
		r.reply, r.err = reply, err
	}
	s.answer(r)
	if len(step) > 0 && (step[0] == script.Acquire && granted(reply) || step[0] == script.Extend) {
		s.snag()
		if w.Mutation == SentAgain && step[0] == script.Acquire && n.rng.IntN(4) == 0 {
			again := n.server
			w.after(between(n.rng, 0, time.Second), func() {
				if n.server == again && !n.hung {
					reply, err := n.server.Exec(r.args)
					w.executed(n, s, r, step, reply, err)
				}
			})
		}
	}
	if len(step) > 0 && step[0] == release && n.server.Has(nextOf(r.args)) {
		s.strand()
	}
	if err == nil && len(step) > 0 && step[0] == script.Enqueue && turn(reply) {
		s.silence()
	}
	if n.fuse > 0 {
		if n.fuse--; n.fuse == 0 {
			n.onFuse()
		}
	}
}

// run executes a request's command, unless a server of a Cluster refuses it. The caller holds world.mu.
func (n *Node) run(r *request) (driver.Reply, error) {
	if n.member != nil {
		return n.member.run(r.args, r.asking)
	}
	return n.server.Exec(r.args)
}

// save keeps what a crash or a promotion would go back to: the keys as they
// were before the first write of a period. The caller holds world.mu.
func (n *Node) save() {
	now := n.world.Now()
	if (n.durability == Snapshot || n.durability == EverySec) && now-n.disk.at >= n.every {
		n.disk = saved{n.server.Snapshot(), now}
	}
	if n.replicated && now-n.replica.at >= n.lag {
		n.replica = saved{n.server.Snapshot(), now}
	}
}

// crash ends the server. The machines hear of it when they send next, or soon.
// The caller holds world.mu.
func (n *Node) crash() {
	if n.server == nil {
		return
	}
	if n.durability == Always {
		n.disk.data = n.server.Snapshot()
	}
	old := n.server
	n.disturb(n.world.Now())
	n.dropInbox()
	n.server, n.hung, n.fuse = nil, false, 0
	n.hangUp(old)
}

// lose notes that the server has, or will have, other data than it had. The caller holds world.mu.
func (n *Node) lose() {
	n.lostAt = n.world.Now()
	n.quarantined()
}

// quarantined notes that the node may be in quarantine from now on. The caller holds world.mu.
func (n *Node) quarantined() { n.disturb(n.world.Now() + n.world.Judge.Quarantine + 2*time.Second) }

// dropInbox forgets what has arrived while the server hung, and with it the connections. The caller
// holds world.mu.
func (n *Node) dropInbox() {
	for _, l := range n.inbox {
		l.stream.closed = true
		l.stream.conn.hearReset(l.stream)
	}
	n.inbox = nil
}

// hangUp has the machines learn that a server is gone, soon or never. The
// caller holds world.mu.
func (n *Node) hangUp(old *server.Server) {
	w := n.world
	for _, m := range w.machines {
		for _, c := range m.conns {
			s := c.stream
			if c.node != n || s == nil || s.server != old || n.rng.IntN(4) == 0 {
				continue
			}
			w.after(c.delay(), func() {
				if c.stream == s {
					c.sever(errReset)
				}
			})
		}
	}
}

// hearReset has the machine learn that the other end knows the stream no more.
// The caller holds world.mu.
func (c *Conn) hearReset(s *stream) {
	if c.stream != s {
		return
	}
	w := c.machine.world
	w.after(c.delay(), func() {
		if c.stream == s {
			c.sever(errReset)
		}
	})
}

// Crash kills the node's server, which comes up again after down. lost brings it
// up empty whatever its durability. after, if more than 0, has it happen right
// after so many more commands.
func (n *Node) Crash(down time.Duration, lost bool, after int) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	n.soon(after, func() {
		if n.server == nil || w.calmed {
			return
		}
		w.History.Add(n.Name, "crashes, down for %v (%v, disk lost %t)", down, n.durability, lost)
		n.crash()
		n.disturb(w.Now() + down)
		if lost {
			n.disk.data = nil
		}
		w.after(down, n.up)
	})
}

// soon calls f now or after so many more commands. The caller holds world.mu.
func (n *Node) soon(after int, f func()) {
	if after <= 0 {
		f()
		return
	}
	n.fuse, n.onFuse = after, f
}

// soonReplicated is soon, where the server has a replica then and faults still happen.
func (n *Node) soonReplicated(after int, f func()) {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	n.soon(after, func() {
		if n.server != nil && n.replicated && !n.world.calmed {
			f()
		}
	})
}

// up brings the server up, if it is down. The caller holds world.mu.
func (n *Node) up() {
	if n.server != nil {
		return
	}
	n.start(n.disk.data)
	n.lose()
	n.world.History.Add(n.Name, "is up with %d keys", n.server.Len())
}

// Promote replaces the server by its replica, a process that nobody knows, which lacks the last
// writes.
func (n *Node) Promote(after int) {
	n.soonReplicated(after, func() {
		w := n.world
		n.lose()
		old := n.server
		n.dropInbox()
		n.hung, n.fuse, n.standby = false, 0, nil
		n.startReplica(old.Started)
		n.hangUp(old)
		w.History.Add(n.Name, "replica promoted, %v behind", w.Now()-n.replica.at)
	})
}

// Hang stops the server for d, as SIGSTOP does.
func (n *Node) Hang(d time.Duration) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.hung || n.server == nil {
		return
	}
	w.History.Add(n.Name, "hangs for %v", d)
	n.hung = true
	n.disturb(w.Now() + d)
	stopped := n.server
	w.after(d, func() {
		if n.server == stopped {
			n.goOn()
		}
	})
}

// goOn ends a hang: what has arrived is executed, connection by connection. The
// caller holds world.mu.
func (n *Node) goOn() {
	if !n.hung {
		return
	}
	n.world.History.Add(n.Name, "goes on with %d commands", len(n.inbox))
	n.hung = false
	inbox := n.inbox
	n.inbox = nil
	var streams []*stream
	of := make(map[*stream][]letter)
	for _, l := range inbox {
		if of[l.stream] == nil {
			streams = append(streams, l.stream)
		}
		of[l.stream] = append(of[l.stream], l)
	}
	n.rng.Shuffle(len(streams), func(i, j int) { streams[i], streams[j] = streams[j], streams[i] })
	for _, s := range streams {
		for _, l := range of[s] {
			n.receive(l.stream, l.r)
		}
	}
}

// StepWall steps the node's wall clock.
func (n *Node) StepWall(d time.Duration) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	w.History.Add(n.Name, "wall clock stepped by %v", d)
	n.disturb(now)
	n.wall.change(now, n.wall.at(now)+d, n.wall.rate)
}
