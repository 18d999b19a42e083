package doctor

import (
	"time"

	"github.com/redlatch/redlatch/internal/node"
)

// Status is what a node's vote is worth to the client of a redlatch.Config.
type Status = node.Status

// The statuses of a node.
const (
	StatusUnclear    = node.StatusUnclear    // the node, or a master of a Cluster, was not reached
	StatusAdmitted   = node.StatusAdmitted   // votes
	StatusAdmissible = node.StatusAdmissible // votes as soon as a client asks it to
	StatusWaiting    = node.StatusWaiting    // may have forgotten locks; votes after a time
	StatusUnfit      = node.StatusUnfit      // does not vote until somebody mends something
)

// Report is what Examine found out about a node. Texts that the server sent may hold any
// characters; those of errors are printable.
type Report struct {
	// Node is the node's address, or its #name.
	Node string
	// Err is why the node could not be reached, or why Examine stopped. What Examine had found by
	// then is in the Report.
	Err error

	// Latency is the median round trip of a few PINGs.
	Latency time.Duration
	// Server is "redis", "valkey" or whatever else it calls itself. Version is its own version, not
	// the one that it is compatible with.
	Server, Version string
	// Role is "master" or "slave", as INFO has it.
	Role string
	// RunID names this run of the server process.
	RunID string
	// Uptime is counted by the server, in whole seconds.
	Uptime time.Duration

	// Status says whether the node votes, as the quarantine would decide it now. Reason says why
	// not, and Left for how much longer with StatusWaiting.
	Status Status
	Reason error
	Left   time.Duration
	// OtherSet has the nodes of the deployment as this node has recorded them, when they are not
	// those of the Config.
	OtherSet []string
	// Recorded is what the node has recorded of the deployment; nil where there is no record or it
	// cannot be read.
	Recorded *Recorded
	// Unreadable names a key of the deployment that no client can have written, such as one of
	// another type, and says why; nil where there is none.
	Unreadable error
	// SameAs is an earlier node of the Config that is the same server, or "".
	SameAs string

	// Persistence is what outlives a restart: "none", "RDB", "AOF everysec" and the like, or
	// "unknown" where CONFIG GET is not permitted. Durable: every answered command does (AOF with
	// fsync always).
	Persistence string
	Durable     bool
	// Replicas is how many replicas are attached to the node. If they are fewer than
	// redlatch.Config.Replicas.Count, none of its votes counts.
	Replicas int
	// MaxMemory is in bytes, 0 for no limit. Policy is the maxmemory-policy. Evicting: the two
	// together allow the server to delete locks.
	MaxMemory int64
	Policy    string
	Evicting  bool

	// ClockOffset is how far the node's wall clock is ahead of this machine's, give or take
	// ClockError, which is half the quickest round trip. ClockKnown is false where TIME was not
	// answered.
	ClockOffset, ClockError time.Duration
	ClockKnown              bool

	// User is the ACL user as the server names it or, where it does not, the URL; "" if the node
	// could not be reached.
	User string
	// Missing are the ACL rules that the user lacks, such as "+eval" or "~redlatch:*". "+client|id"
	// and "+client|kill" matter with one node only: without them everything works, but a lone
	// caller waits longer.
	Missing []string
	// Refusal is any other error with which the node answers harmless commands, such as OOM or
	// MISCONF: it would answer locks with it, too.
	Refusal error
	// ForeignKeys are keys of the locks named to Examine that no client can have written.
	ForeignKeys []ForeignKey

	// Cluster is nil where the node is a server. For a Cluster, Status, Reason, Latency, Left,
	// Unreadable and Recorded are the worst of its masters', and Replicas is their sum. Evicting
	// says that a master may delete locks, and Durable that none can lose what it answered. All
	// else that a server's Report has is in the reports of the masters.
	Cluster *Cluster
}

// Recorded is what a node has recorded of its deployment. Only clients with the same settings vote
// there; see redlatch.Client.Reset for how to change them.
type Recorded struct {
	// Nodes are the names of the deployment's nodes, sorted. They may be other names for the
	// servers that the Config names.
	Nodes        []string
	MaxTTL       time.Duration
	NoQuarantine bool
	Durable      bool
	// Void is why Durable is not believed any more, "" where it is believed or was never said.
	Void string
	// RunID is the run of the server that was admitted last, or that is in quarantine.
	RunID string
	// Agrees: the Config has the same settings.
	Agrees bool
	// Status, Reason and Left are those of the Report, but for clients with the recorded settings,
	// whatever the Config's are.
	Status Status
	Reason error
	Left   time.Duration
}

// ForeignKey is a key of a lock with a value that no client can have written: it is of another
// type, or its value should be a number and is none, or is a number out of range.
type ForeignKey struct {
	// Key is the key's whole name. Problem says what is wrong with it.
	Key, Problem string
	// Blocks: the lock cannot be acquired until the key is deleted. Otherwise the next client that
	// needs the key replaces it.
	Blocks bool
}

func report(name string, x *node.Examination, r *node.Record) Report {
	return Report{
		Node: name, Err: x.Err,
		Latency: x.Latency, Server: x.Server, Version: x.Version,
		Role: x.Role, RunID: x.RunID, Uptime: x.Uptime,
		Status: x.Status, Reason: x.Reason, Left: x.Left, OtherSet: x.OtherSet,
		Recorded: recordedOf(r), Unreadable: x.Unreadable(),
		Persistence: x.Persistence, Durable: x.Durable, Replicas: x.Replicas(), User: x.User,
		MaxMemory: x.MaxMemory, Policy: x.Policy, Evicting: x.Evicting,
		ClockOffset: x.Offset, ClockError: x.OffsetError, ClockKnown: x.ClockKnown,
		Missing: x.Missing, Refusal: x.Refusal, ForeignKeys: foreignKeys(x.Foreign),
	}
}

func recordedOf(r *node.Record) *Recorded {
	if r == nil {
		return nil
	}
	return &Recorded{
		Nodes: r.Nodes, MaxTTL: r.MaxTTL, NoQuarantine: r.NoQuarantine, Durable: r.Durable, Void: r.Void,
		RunID: r.RunID, Agrees: r.Agrees, Status: r.Status, Reason: r.Reason, Left: r.Left,
	}
}

func foreignKeys(found []node.ForeignKey) []ForeignKey {
	var keys []ForeignKey
	for _, k := range found {
		keys = append(keys, ForeignKey(k))
	}
	return keys
}
