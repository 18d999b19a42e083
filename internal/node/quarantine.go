package node

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
)

// sameEnd is by how much the ends that two looks find for one quarantine may differ: servers count
// in whole seconds.
const sameEnd = 5 * time.Second

// quarantines are the quarantines that this client has met of a node's server or, in a Cluster, of
// its masters. Each is logged once when it is met and once when its server votes.
type quarantines struct {
	// server: the node is one server, so that no earlier run is left when one votes.
	server bool
	met    atomic.Bool // at least one was met

	mu sync.Mutex // guards of; nothing is called while it is held
	of map[string]*quarantine
}

// quarantine is the quarantine of one run of a server.
type quarantine struct {
	until time.Time
	// told: it was logged, so its end may be. over: the server has voted since.
	told, over bool
}

// begin notes that run does not vote before until, and reports whether that is news. An earlier end is
// none: it is that of some of the slots of a Cluster's master.
func (q *quarantines) begin(run string, until time.Time) (news bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.of[run]
	if known != nil && until.Sub(known.until) < sameEnd {
		return false
	}
	if q.of == nil {
		q.of = make(map[string]*quarantine)
	}
	maps.DeleteFunc(q.of, func(_ string, q *quarantine) bool { return time.Since(q.until) > sameEnd })
	q.of[run] = &quarantine{until: until}
	q.met.Store(true)
	return true
}

// told notes that the quarantine of run is logged.
func (q *quarantines) told(run string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if known := q.of[run]; known != nil {
		known.told = true
	}
}

// end notes that run votes, and returns the runs that were known not to and whose quarantines are over
// with that.
func (q *quarantines) end(run string) (over []string) {
	if !q.met.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if known := q.of[run]; known != nil && known.told && !known.over {
		known.over = true
		over = append(over, run)
	}
	if !q.server {
		return over
	}
	for of, known := range q.of {
		if known.told && !known.over {
			delete(q.of, of) // a master that comes back after a failover may be kept out anew
			over = append(over, of)
		}
	}
	slices.Sort(over)
	return over
}

// last reports whether a server is known not to vote yet.
func (q *quarantines) last() bool {
	if !q.met.Load() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, known := range q.of {
		if !known.over && time.Now().Before(known.until) {
			return true
		}
	}
	return false
}

// noteWait logs, once, a quarantine that an inspection has met.
func (n *Node) noteWait(err error) {
	wait, ok := errors.AsType[*admission.WaitError](err)
	if !ok || wait.RunID == "" || wait.Left <= 0 {
		return
	}
	until := time.Now().Add(wait.Left)
	if n.options.quarantines.begin(wait.RunID, until) {
		defer n.options.quarantines.told(wait.RunID)
		n.options.Logger.Warn("node in quarantine: it does not vote yet", "node", n.Name(), "reason", wait.Reason,
			"since", until.Add(-max(n.options.Agreement.Quarantine(), wait.Left)).Round(time.Second), "until", until.Round(time.Second), "run_id", wait.RunID,
			"ends", "by itself, or when somebody vouches for the node: redlatch admit, or Client.Admit")
		if n.options.Quarantined != nil {
			n.options.Quarantined(wait, until)
		}
	}
}

// noteVote logs that a quarantine is over, if one was met, and reports whether it did.
func (n *Node) noteVote() (news bool) {
	seen := n.link.seen.Load()
	if seen == nil {
		return false
	}
	over := n.options.quarantines.end(seen.run)
	if len(over) == 0 {
		return false
	}
	n.options.Logger.Info("node votes: its quarantine is over", "node", n.Name(), "run_id", seen.run)
	if n.options.Admitted != nil {
		for _, run := range over {
			n.options.Admitted(run)
		}
	}
	return true
}

// InQuarantine reports whether the node is known not to vote yet.
func (n *Node) InQuarantine() bool { return n.options.quarantines.last() }

// InQuarantine reports whether a master is known not to vote yet.
func (c *Cluster) InQuarantine() bool { return c.options.quarantines.last() }
