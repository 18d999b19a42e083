package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
)

// Reasons for which a node does not vote, found by errors.Is.
var (
	ErrReplica  = errors.New("the node is a replica, which never votes: name its master")
	ErrEvicting = errors.New("the node may evict locks to make room: set maxmemory-policy noeviction")
)

// ErrUnfit marks errors that waiting does not cure.
var ErrUnfit = errors.New("the node cannot serve this client")

// unread is the reason when too few other nodes could be asked for their records.
const unread = "the node has no record of the deployment or an old one, and too few others answer that might tell: start those that are down, or let them be reached"

// idLength is how many characters a run or replication id has (Redis source, CONFIG_RUN_ID_SIZE).
const idLength = 40

// WaitError says why a node's vote does not count yet, and how long that will last.
type WaitError struct {
	Reason string
	// Left is how long until the node can be admitted, 0 when not known.
	Left time.Duration
	// RunID is the run that an operator can vouch for.
	RunID string
}

func (e *WaitError) Error() string {
	if e.Left <= 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s; it can vote in %v", e.Reason, e.Left.Round(100*time.Millisecond))
}

// Sync says whether a node's settings agree with Agreement.Durable.
type Sync uint8

// The values of Sync.
const (
	// SyncUnseen: the server does not show its settings to this user.
	SyncUnseen Sync = iota
	// SyncAlways: every answered write is on disk.
	SyncAlways
	// SyncOtherwise: an answered write may not be on disk.
	SyncOtherwise
)

// Evidence is what a decision rests on.
type Evidence struct {
	// Server is the server that answers; its Run is "" where it does not tell one.
	Server
	// Replica: its role is not master. Promoted: it was a replica before. A server that had no
	// replica for an hour forgets that, and is then not seen as promoted.
	Replica, Promoted bool
	// Flushed: this run may have been told to delete all keys. Evicting: it may delete locks to make room,
	// and is therefore refused.
	Flushed, Evicting bool
	// Flushes is how often this run was told to delete all keys, since its statistics were last reset.
	Flushes int64
	// Version is the server's version. KeepsScripts: its scripts may outlive a restart.
	Version      string
	KeepsScripts bool
	// Uptime is how long the server has been up at least.
	Uptime time.Duration
	// Now is the node's clock in seconds.
	Now int64
	// Record is what the node has recorded of the deployment, nil for none.
	Record *Record
	// Note is the text of its quarantine's note, "" for none.
	Note string
	// Voted: this run has a script that an admission loads, so it may have voted; or it has dropped
	// scripts, and may have had that one.
	Voted bool
	// Others are the records of the other nodes, read where NeedsOthers says so.
	Others Others
	// Vouched: an operator vouches for this run now.
	Vouched bool
	// Sync counts only with Agreement.Durable.
	Sync Sync
	// Shard is nil where the node is no Cluster. Where it is one, Server is the slot's master,
	// Record is the record of that master, which takes the place of a note, and Others are the
	// other masters.
	Shard *Shard
}

// Others counts the other nodes by their records.
type Others struct {
	// Same have a record of the client's agreement, and None have none. The rest could not be asked, or differ.
	Same, None int
	// Longest is the longest TTL of the records of Same (Record.LongestTTL).
	Longest time.Duration
	// Differing says how a record of another agreement differs, or that it is a later version's; nil if there is none.
	Differing error
}

// Outcome is what is to be done with a node.
type Outcome uint8

// The outcomes.
const (
	// Refuse: it does not vote for this client until somebody mends something. Nothing may
	// be changed on it.
	Refuse Outcome = iota
	// Wait: it will be admitted some time later.
	Wait
	// Begin: it will be admitted after a quarantine that begins now and must be noted on it.
	Begin
	// Admit: it may vote now.
	Admit
)

// Decision is an outcome and, unless that is Admit, the reason: a *WaitError for Wait and Begin.
type Decision struct {
	Outcome Outcome
	Err     error
	// Void, with Admit, is why the record's Durable is not to be believed any more.
	Void string
	// Unread, with Wait: too few other nodes could be asked whether the client's agreement is the
	// deployment's. Nothing may be written on the node, as after Refuse.
	Unread bool
}

func refuse(err error) Decision { return Decision{Outcome: Refuse, Err: err} }

// Decide says whether the node that e describes may vote for clients of a. The cases go from what
// forbids a vote, over what is certain, to what is presumed.
func Decide(a Agreement, e Evidence) Decision {
	switch {
	case e.Replica:
		return refuse(ErrReplica)
	case e.Evicting:
		return refuse(ErrEvicting)
	}
	if e.overruled(a) {
		e.Record = nil
	}
	// rule: agreement
	if d, ok := decideAgreement(a, &e); ok {
		return d
	}
	void := voided(a, e)
	admitted := Decision{Outcome: Admit, Void: void}
	switch {
	case len(e.Run) != idLength || len(e.ReplicationID) != idLength:
		return refuse(errors.New("the node's INFO names no run_id and master_replid, by which a server is told from the one before: use Redis 7.0 or Valkey 7.2 or later"))
	case a.NoQuarantine:
		return admitted
	case e.KeepsScripts:
		return refuse(fmt.Errorf("NoQuarantine: server version %s may keep scripts through a restart: use Redis 7.0 or Valkey 7.2 or later, or switch the quarantine off", printable.Text(e.Version)))
	case e.Vouched:
		return admitted
	case e.Shard != nil:
		return decideSlot(a, &e)
	}

	quarantine := e.Quarantine(a)
	note, noted := ParseNote(e.Note)
	ofThisRun := noted && note.Run == e.Run
	begin := func(reason string) Decision {
		left := quarantine
		if noted && note.possible() {
			// What is left of a quarantine may be more than a new one, as after a change of the deployment.
			// rule: quarantine-not-shortened
			left = max(left, note.left(e.Server, e.Now))
		}
		return Decision{Outcome: Begin, Err: &WaitError{Reason: reason, Left: left, RunID: e.Run}}
	}
	deleted := e.Record == nil && (e.Voted || e.Flushed)
	wasReplica := e.Promoted || e.Received != 0 || e.Record != nil && e.Record.Run == e.Run
	switch {
	case e.Note != "" && !noted, ofThisRun && !(note.possible() && note.Since <= e.Now && e.hasBeen(note.Server, e.Promoted)):
		// The quarantine may have lasted for long enough, but nobody can say so: the clock was set back
		// since, or a note of this run from before it was a replica has come back with its master's data.
		return begin("its quarantine cannot be read, and begins anew")
	case ofThisRun:
		note.Length = max(note.Length, seconds(quarantine))
		if left := note.left(e.Server, e.Now); left > 0 {
			return Decision{Outcome: Wait, Err: &WaitError{
				Reason: "it was promoted, its data was lost or replaced while it ran, its deployment was changed, or this database of it was never used before", Left: left, RunID: e.Run,
			}}
		}
		return admitted
	case noted && note.possible() && note.left(e.Server, e.Now) > e.Uptime && (e.isKnown() || !deleted && !wasReplica):
		// A change of the deployment may keep a node out for longer than a restart does.
		return Decision{Outcome: Wait, Err: &WaitError{Reason: "it was kept out when it restarted", Left: note.left(e.Server, e.Now) - e.Uptime, RunID: e.Run}}
	case e.isKnown(): // the note is another run's
		return admitted
	case deleted:
		return begin("its data was deleted, or may have been: a database that was never used looks the same")
	// rule: promotion-seen
	case wasReplica:
		// Nobody knows since when it has been a master. If it was admitted as this run and is not
		// known any more, it was a replica since. One that does not say what it has received may
		// have been one, and have forgotten that it was promoted.
		return begin("it was promoted from replica, or may have been, and may lack its master's last writes")
	// rule: uptime
	case e.Uptime >= quarantine:
		return admitted
	case e.keptItsWord(a) && void == "":
		return admitted
	}
	return Decision{Outcome: Wait, Err: &WaitError{
		Reason: fmt.Sprintf("it started %v ago and may have forgotten locks of up to %v", e.Uptime, e.longestTTL(a)),
		Left:   quarantine - e.Uptime, RunID: e.Run,
	}}
}

// decideAgreement decides for a client whose agreement is not the deployment's, or where nobody can tell
// whether it is; otherwise ok is false. A record counts if the server that has it was admitted or set under
// it. A server without a record may have lost it, and a record that came with a restart or from a master
// may be an old one: then the other nodes' records decide. Where a majority is known to have no record but
// the client's, the deployment is new or all nodes forgot it, and there is only the client's word.
func decideAgreement(a Agreement, e *Evidence) (d Decision, ok bool) {
	if e.Record != nil {
		recorded := e.Record.Agreement(a.Deployment)
		same := recorded.ID() == a.ID()
		switch {
		case !same:
			return refuse(&DisagreementError{Recorded: recorded, Ours: a}), true
		case e.isKnown():
			return Decision{}, false
		}
	}
	need := e.majority(a)
	switch {
	case e.Others.Same >= need:
		return Decision{}, false
	case e.Others.Differing != nil:
		return refuse(e.Others.Differing), true
	case 1+e.Others.Same+e.Others.None < need:
		return Decision{Outcome: Wait, Err: &WaitError{Reason: unread}, Unread: true}, true
	}
	return Decision{}, false
}

// overruled reports whether the node has a record of another agreement than a, which may be an old one, while
// a majority has a's: the nodes that differ from a majority cannot make a quorum.
func (e *Evidence) overruled(a Agreement) bool {
	return e.Record != nil && e.Record.Agreement(a.Deployment).ID() != a.ID() && !e.isKnown() && e.Others.Same >= e.majority(a)
}

// majority returns how many of the nodes, or of a Cluster's masters, are more than half.
func (e *Evidence) majority(a Agreement) int {
	if e.Shard != nil {
		return e.Shard.Masters/2 + 1
	}
	return len(a.Nodes)/2 + 1
}

// NeedsOthers reports whether the other nodes' records matter.
func (e *Evidence) NeedsOthers() bool { return !e.isKnown() }

// longestTTL returns the longest TTL of a lock that the node may have forgotten: that of a, or a longer one that the
// other nodes tell of, as locks of before a change may be held.
func (e *Evidence) longestTTL(a Agreement) time.Duration { return max(a.MaxTTL, e.Others.Longest) }

// Quarantine returns how long the node stays out if it may have forgotten locks.
func (e *Evidence) Quarantine(a Agreement) time.Duration {
	// rule: quarantine-not-shortened
	return Quarantine(e.longestTTL(a))
}

// isKnown reports whether this server was admitted before, or got its record from an operator (redlatch
// deployment set) and is kept out by its note since. It still is known after its script cache was
// flushed: that lost no lock.
func (e *Evidence) isKnown() bool { return e.Record != nil && e.hasBeen(e.Record.Server, e.Promoted) }

// voided returns why the operator's word that the node is durable is not believed any more, or "" if it is
// believed or was not given.
func voided(a Agreement, e Evidence) string {
	if !a.Durable {
		return ""
	}
	if e.Record != nil && e.Record.Void != "" {
		return e.Record.Void
	}
	if e.Sync == SyncOtherwise {
		return "the node was seen without appendonly yes, appendfsync always and no-appendfsync-on-rewrite no"
	}
	return ""
}

// keptItsWord reports whether a restarted node has all that it ever granted, on the word of an
// operator: each write was on disk before its answer was sent. What is seen of the node must not
// contradict that. A quarantine that is still noted was never over.
func (e *Evidence) keptItsWord(a Agreement) bool {
	return a.Durable && e.Record != nil && e.Note == "" && e.Sync == SyncAlways
}
