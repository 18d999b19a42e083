package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/sim/server"
)

// Cluster is a Redis Cluster: masters, a replica for each, and the slots, which go from master to master in parts.
// Its servers tell each other which parts they have, each under its configuration epoch, and believe the
// greatest (Redis Cluster specification, "Hash slots configuration propagation"). It does not refuse a vote where
// a server of Redis would for being cut off: what a former master answers then is for its clients to notice.
type Cluster struct {
	world   *World
	rng     *rand.Rand
	servers []*clusterNode // guarded by world.mu, as is what they know
	epoch   int64          // the greatest
}

// parts is into how many parts the slots are divided.
const parts = 8

// partOf returns the part that a slot is in.
func partOf(slot uint16) int { return int(slot) * parts / hashslot.Slots }

// clusterNode is a server's part in a Cluster, and what it knows of the others. The callers of its methods hold world.mu.
type clusterNode struct {
	cluster *Cluster
	node    *Node
	id      string
	epoch   int64
	// master is whose replica it is, nil for a master.
	master *clusterNode
	owners [parts]ownership
	// givesTo is who gets the keys of a part that it gives away, and takesFrom whose keys come to it.
	givesTo, takesFrom [parts]*clusterNode
	// alone is until when it hears no other server, nor any of it.
	alone time.Duration
	// asking: the command under way was sent by an ASK.
	asking bool
	// interruption is what stops the server, or will; nil if nothing does.
	interruption *interruption
}

// ownership is who has a part, and since which epoch.
type ownership struct {
	of    *clusterNode
	epoch int64
}

// NewCluster makes a Cluster of that many masters, with a replica each, out of new nodes. Data that is promoted
// is up to lag behind.
func (w *World) NewCluster(masters int, d Durability, lag time.Duration) *Cluster {
	c := &Cluster{world: w, rng: w.Rand("cluster"), epoch: int64(masters)}
	for i := range 2 * masters {
		n := w.NewNode(d, i < masters, 1+0.0045*(2*c.rng.Float64()-1), between(c.rng, -500*time.Millisecond, 500*time.Millisecond), time.Hour)
		n.lag = lag
		n.member = &clusterNode{cluster: c, node: n, id: fmt.Sprintf("%040x", 1<<32|i), epoch: int64(i%masters + 1)}
		n.member.describe(n.server)
		c.servers = append(c.servers, n.member)
	}
	for i, s := range c.servers {
		for p := range parts {
			s.owners[p] = ownership{c.servers[p*masters/parts], int64(p*masters/parts + 1)}
		}
		if i >= masters {
			s.follow(c.servers[i-masters])
		}
		s.heartbeat()
	}
	return c
}

// describe has a process of the server answer as one of the Cluster.
func (s *clusterNode) describe(process *server.Server) {
	process.Nodes, process.Local = s.nodes, s.local
}

// follow makes the server a replica of another.
func (s *clusterNode) follow(of *clusterNode) {
	process := s.node.server
	s.master, s.givesTo, s.takesFrom = of, [parts]*clusterNode{}, [parts]*clusterNode{}
	process.Replica, process.Received, process.ReplicationID = true, process.Received+1000, of.node.server.ReplicationID
	process.Load(of.node.server.Snapshot())
	s.node.replicated, process.Replicas = false, 0
	of.node.replicated, of.node.server.Replicas = true, 1
}

// up reports whether the server hears others.
func (s *clusterNode) up() bool {
	return s.node.server != nil && !s.node.hung && s.cluster.world.Now() >= s.alone
}

// has reports whether the server is a master that has the part, as far as it knows.
func (s *clusterNode) has(part int) bool { return s.master == nil && s.owners[part].of == s }

// count returns how many parts it has.
func (s *clusterNode) count() (n int) {
	for p := range parts {
		if s.has(p) {
			n++
		}
	}
	return n
}

// heartbeat tells the others now and then what the server has.
func (s *clusterNode) heartbeat() {
	s.cluster.world.after(between(s.cluster.rng, 300*time.Millisecond, time.Second), func() {
		s.tell()
		s.heartbeat()
	})
}

// tell tells the other servers what this one has.
func (s *clusterNode) tell() {
	if !s.up() || s.count() == 0 {
		return
	}
	has, epoch := s.owned(), s.epoch
	for _, other := range s.cluster.servers {
		if other != s {
			s.cluster.world.after(around(s.cluster.rng, 20*time.Millisecond), func() {
				if other.up() && s.up() {
					other.hear(s, has, epoch)
				}
			})
		}
	}
}

// owned are the parts that the server has.
func (s *clusterNode) owned() (has [parts]ownership) {
	for p := range has {
		if s.has(p) {
			has[p] = s.owners[p]
		}
	}
	return has
}

// hear takes in which parts another server said that it has, which are some. A master that has no part any more becomes the
// replica of the one that has its last, and so does its own replica.
func (s *clusterNode) hear(other *clusterNode, has [parts]ownership, epoch int64) {
	lost := false
	for p := range has {
		switch known := &s.owners[p]; {
		case has[p].of == nil:
		case known.of == other:
			known.epoch = max(known.epoch, epoch)
		case known.epoch < epoch:
			lost = lost || s.has(p)
			*known = ownership{other, epoch}
			s.givesTo[p], s.takesFrom[p] = nil, nil
			if s.master == nil {
				s.drop(p)
			}
		}
	}
	if lost && s.count() == 0 || s.master != nil && s.master != other && s.master.count() == 0 {
		s.cluster.world.History.Add(s.node.Name, "is a replica of %s from now on", other.node.Name)
		s.follow(other)
	}
}

// drop deletes the keys of a part that the server has no more.
func (s *clusterNode) drop(part int) {
	for _, key := range s.keys(part) {
		s.node.server.Take(key)
	}
}

// keys lists the keys of a part, in order.
func (s *clusterNode) keys(part int) (keys []string) {
	for key := range s.node.server.Data() {
		if partOf(hashslot.Of(hashslot.Tag(key))) == part {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// nodes is the answer to CLUSTER NODES.
func (s *clusterNode) nodes() string {
	var b strings.Builder
	for _, other := range s.cluster.servers {
		flags, epoch, slots := "slave", other.epoch, ""
		for p := 0; p < parts; p++ {
			if s.owners[p].of != other {
				continue
			}
			first := p
			for p+1 < parts && s.owners[p+1].of == other {
				p++
			}
			slots += fmt.Sprintf(" %d-%d", first*hashslot.Slots/parts, (p+1)*hashslot.Slots/parts-1)
			flags, epoch = "master", s.owners[first].epoch
		}
		if other == s {
			epoch = s.epoch
			if flags = "myself,master"; s.master != nil {
				flags, slots = "myself,slave", ""
			}
		}
		fmt.Fprintf(&b, "%s %s:6379@16379 %s - 0 0 %d connected%s\n", other.id, other.node.Name, flags, epoch, slots)
	}
	return b.String()
}

// route returns why the server does not execute a command on these keys, "" where it does (Redis source, getNodeByQuery).
func (s *clusterNode) route(keys []string) (refusal string) {
	slot := hashslot.Of(hashslot.Tag(keys[0]))
	p, missing := partOf(slot), 0
	for _, key := range keys {
		if hashslot.Of(hashslot.Tag(key)) != slot {
			return "CROSSSLOT Keys in request don't hash to the same slot"
		}
		if !s.node.server.Has(key) {
			missing++
		}
	}
	const apart = "TRYAGAIN Multiple keys request during rehashing of slot"
	switch {
	case s.has(p) && (s.givesTo[p] == nil || missing == 0):
		return ""
	case s.has(p) && missing < len(keys):
		return apart
	case s.has(p):
		return fmt.Sprintf("ASK %d %s", slot, s.givesTo[p].node.Name)
	case s.takesFrom[p] != nil && s.asking && (missing == 0 || len(keys) == 1):
		return ""
	case s.takesFrom[p] != nil && s.asking:
		return apart
	}
	return fmt.Sprintf("MOVED %d %s", slot, s.owners[p].of.node.Name)
}

// local returns why a script may not access these keys.
func (s *clusterNode) local(keys []string) (refusal string) {
	if s.route(keys) == "" {
		return ""
	}
	return "ERR Script attempted to access a non local key in a cluster node"
}

// run executes a command, or refuses it.
func (s *clusterNode) run(args []string, asking bool) (driver.Reply, error) {
	s.asking = asking
	defer func() { s.asking = false }()
	if at := driver.FirstKey(args); at > 0 {
		if refusal := s.route(keysOf(args, at)); refusal != "" {
			return driver.Reply{}, &driver.ServerError{Text: refusal}
		}
	}
	if args[0] == "CLUSTER" && args[1] == "SLOTS" {
		return s.slots(), nil
	}
	return s.node.server.Exec(args)
}

// keysOf returns the keys of a command whose first key is at that place.
func keysOf(args []string, at int) []string {
	if at != 3 { // no script
		return args[at : at+1]
	}
	n, _ := strconv.Atoi(args[2])
	return args[at : at+n]
}

// slots is who has each part, by its node's index.
func (s *clusterNode) slots() driver.Reply {
	reply := driver.Reply{Kind: driver.Array}
	for _, c := range s.owners {
		reply.Array = append(reply.Array, driver.Reply{Kind: driver.Int, Int: int64(c.of.node.index)})
	}
	return reply
}
