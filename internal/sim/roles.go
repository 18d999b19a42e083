package sim

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/sim/server"
)

// shortestDemotion is the shortest time from a master's demotion to its promotion, with its data
// loaded anew in between.
const shortestDemotion = 5 * time.Millisecond

// identity returns a replication id that no master had before. The caller holds world.mu.
func (n *Node) identity() string {
	n.runs++
	return fmt.Sprintf("%040x", (n.index+1)<<20|n.runs)
}

// Demote has the server be a replica for d and a master again, by REPLICAOF: its scripts and its
// connections live on. lost has it load a replica's data in between, which lacks the last
// writes. after is how many commands it executes before.
func (n *Node) Demote(d time.Duration, lost bool, after int) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	n.soon(after, func() { n.demote(max(d, shortestDemotion), lost) })
}

// demote is Demote now. The caller holds world.mu.
func (n *Node) demote(d time.Duration, lost bool) {
	w, s := n.world, n.server
	if s == nil || s.Replica || w.calmed {
		return
	}
	n.disturb(w.Now() + d)
	s.Replica, w.demoted = true, max(w.demoted, w.Now()+d)
	if lost && n.replicated {
		w.History.Add(n.Name, "is a replica for %v, of one that was %v behind", d, w.Now()-n.replica.at)
		n.lose()
		s.Load(n.replica.data)
		s.Received += 1000
		n.restored = n.replica.data
	} else {
		w.History.Add(n.Name, "is a replica for %v, and loses nothing", d)
	}
	w.after(d, func() {
		if s.Replica && n.server == s {
			n.promoted(s)
			w.History.Add(n.Name, "is a master again")
		}
	})
}

// Demoted reports whether a server was a replica at that time or a moment before. Replicas do not
// vote, and a client that has found one says so until it has heard from it again: it may be cut off,
// or stand still.
func (w *World) Demoted(at time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.demoted > 0 && at < w.demoted+5*time.Second
}

// promoted has a process go on as a master. The caller holds world.mu.
func (n *Node) promoted(s *server.Server) {
	s.Replica, n.world.demoted = false, max(n.world.demoted, n.world.Now())
	s.ReplicationID = n.identity()
	s.Offset = 1 + int64(n.runs)
	n.disturb(n.world.Now())
}

// startReplica brings up the replica as a master, which has been up since started. The caller holds world.mu.
func (n *Node) startReplica(started time.Time) {
	n.start(n.replica.data)
	n.server.Started, n.server.Received = started, 1000
	n.server.Offset = 1 + int64(n.runs)
}

// FailOver has another process take the server's place, as Sentinels do: the old one is its
// replica from then on, and takes its place the next time. lost says that it lacks the last
// writes. after is how many commands are executed before.
func (n *Node) FailOver(lost bool, after int) {
	n.soonReplicated(after, func() {
		w := n.world
		old, next := n.server, n.standby
		if next == nil {
			next = n.process()
			next.Started, next.Replica = old.Started, true // it has been up all the time
		}
		data, behind := old.Snapshot(), time.Duration(0)
		if lost {
			data, behind = n.replica.data, w.Now()-n.replica.at
		}
		n.lose()
		w.History.Add(n.Name, "fails over to %s, %v behind", next.RunID[30:], behind)
		for _, s := range []*server.Server{old, next} {
			s.Load(data)
			s.Received += 1000
		}
		old.Replica, old.Replicas = true, 0
		next.Replicas = 1
		n.promoted(next)
		n.dropInbox()
		n.hung, n.fuse = false, 0
		n.server, n.standby, n.restored = next, old, data
		n.hangUp(old)
	})
}

// Attach gives the server a replica, with all that it has, or takes it away.
func (n *Node) Attach(replicated bool) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server == nil || n.replicated == replicated {
		return
	}
	w.History.Add(n.Name, "has a replica: %t", replicated)
	n.replicated, n.standby, n.server.Replicas = replicated, nil, 0
	if replicated {
		n.replica, n.server.Replicas = saved{n.server.Snapshot(), w.Now()}, 1
	}
}

// Persist changes the settings by which the server keeps its data, while it runs. A file that
// is not written any more stays as it is.
func (n *Node) Persist(d Durability) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server == nil || n.durability == d {
		return
	}
	w.History.Add(n.Name, "keeps its data by %v, not by %v any more", d, n.durability)
	n.durability = d
	n.every = persistence(d)
	if n.server.AppendFsync = d.fsync(); d != Memory {
		n.disk = saved{n.server.Snapshot(), w.Now()}
	}
}

// RestartAs kills the server, which comes up again after down and keeps its data otherwise from then
// on.
func (n *Node) RestartAs(d Durability, down time.Duration) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server == nil || w.calmed {
		return
	}
	w.History.Add(n.Name, "crashes, down for %v (%v, and %v afterwards)", down, n.durability, d)
	n.crash()
	n.disturb(w.Now() + down)
	w.after(down, func() {
		n.durability, n.every = d, persistence(d)
		n.up()
	})
}

// persistence is how far behind the server a node's file may be.
func persistence(d Durability) time.Duration {
	if d == Snapshot {
		return 5 * time.Second
	}
	return time.Second
}

// Rename has the server have another replication id though it was a master all the time, as
// one that has had no replica for an hour.
func (n *Node) Rename() {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server == nil || n.server.Replica {
		return
	}
	w.History.Add(n.Name, "has another replication id")
	n.disturb(w.Now())
	n.server.ReplicationID, n.server.Offset = n.identity(), -1
}

// BackUp copies what the server has, for Restore.
func (n *Node) BackUp() {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server != nil {
		n.backup = saved{n.server.Snapshot(), w.Now()}
	}
}

// Restore kills the server, which comes up again after down, with the last backup.
func (n *Node) Restore(down time.Duration) {
	w := n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.server == nil || w.calmed {
		return
	}
	w.History.Add(n.Name, "is restored from %v ago, down for %v", w.Now()-n.backup.at, down)
	n.crash()
	n.disturb(w.Now() + down)
	n.disk.data = n.backup.data
	w.after(down, n.up)
}
