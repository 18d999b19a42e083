// Package demo is `redlatch-torture demo`. Several worker processes race for one lock, under
// which they change one shared record. Meanwhile the demo kills and hangs nodes and brings them
// back. It counts how often the lock failed to keep the workers apart.
//
// # Processes
//
// The demo starts two sorts of processes, none of which outlives it:
//
//   - nodes: real servers, or embedded ones where none is installed (Serve);
//   - workers (Work): each takes the lock, marks the record as in use, reads it,
//     works for a moment, writes it back with a count one higher, and reports.
//
// The demo itself starts and stops them (Run), takes nodes out and brings them
// back (faults), asks the nodes for their votes (observer) and adds up what
// the workers report (tally).
//
// # What is measured
//
// Violations are detected without asking the lock. An overlap is a worker that finds
// the mark of another one at the record. A lost update is one that a worker made and
// that the record does not count in the end. The record is a file that is read and then
// written. Nothing but the lock keeps the workers apart, as a run with NoLock
// shows.
//
// What the demo tells of a node (story) is what the library says of it: the node votes
// again once the library has seen a vote of it.
//
// At most a minority of the nodes is out at any moment, counting those that came
// back empty and do not vote yet. With a majority out nobody could acquire the lock, and
// the run would show nothing.
package demo

import (
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch"
)

// WorkerCommand and NodeCommand are the hidden commands that Run starts of the program that
// calls it. The program must call Work for the first and Serve for the second.
const (
	WorkerCommand = "demo-worker"
	NodeCommand   = "demo-node"
)

// Options say how to run.
type Options struct {
	// For is how long the workers race, at least 2 s.
	For time.Duration
	// Workers is the number of worker processes, 2 to 64.
	Workers int
	// Nodes is the number of nodes, 3 to 15.
	Nodes int
	// Engine is "zookeeper" or "etcd" for an ensemble of three servers, "" for Redis.
	Engine string
	// Embedded uses the embedded servers even where a real one is installed.
	Embedded bool
	// NoLock has the workers ignore the lock, to show that the demo detects the violations.
	NoLock bool
	// Out gets the output: a view that is redrawn if it is a terminal, else only lines.
	Out *os.File
}

const (
	shortestRun                = 2 * time.Second
	fewestWorkers, mostWorkers = 2, 64
	fewestNodes, mostNodes     = 3, 15
)

// check returns nil if the options can work, else an error that wraps redlatch.ErrInvalid and
// names the setting.
func (o Options) check() error {
	switch {
	case o.For < shortestRun:
		return invalid("--for is %v: use %v or more, or there is no time to take nodes out and bring them back", o.For, shortestRun)
	case o.Workers < fewestWorkers || o.Workers > mostWorkers:
		return invalid("--workers is %d: use %d to %d", o.Workers, fewestWorkers, mostWorkers)
	case o.Nodes < fewestNodes || o.Nodes > mostNodes:
		return invalid("--nodes-count is %d: use %d to %d; with fewer, none could be taken out", o.Nodes, fewestNodes, mostNodes)
	case o.Engine != "" && o.Nodes != fewestNodes:
		return invalid("--nodes-count is %d, and --engine %s has three servers: leave --nodes-count out", o.Nodes, o.Engine)
	case o.Engine != "" && o.Embedded:
		return invalid("--embedded has servers of Redis, and --engine is %s: leave one of them out", o.Engine)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", redlatch.ErrInvalid, fmt.Errorf(format, args...))
}

// The TTL and the names of the locks. A short TTL makes a short quarantine: a node that
// came back empty stays out for the TTL and 4 s more.
const (
	ttl        = 2 * time.Second
	recordLock = "demo/record"
	watchLock  = "demo/watch"
)

// config returns the configuration of a client. All clients of the demo must have the same one,
// apart from the label.
func config(nodes []string, label string) redlatch.Config {
	return redlatch.Config{Nodes: nodes, TTL: ttl, MaxTTL: ttl, Deployment: "demo", Label: label}
}
