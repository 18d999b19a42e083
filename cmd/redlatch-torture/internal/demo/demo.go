// Package demo is `redlatch-torture demo`: several worker processes race for one lock
// to change one shared record, while nodes are killed, hung and brought back
// under it, and the demo measures what came of it.
//
// # Who is who
//
// All are processes of their own, started by the demo and gone when it is:
//
//   - nodes: real servers, or embedded ones where none is installed (Serve);
//   - workers (Work): each takes the lock, marks the record as in use, reads it,
//     works for a moment, writes it back one higher, and reports.
//
// The demo itself starts and stops them (Run), takes nodes out and brings them
// back (faults), asks the nodes for their votes (observer) and judges (tally).
//
// # What is measured
//
// The judge does not ask the lock. An overlap is a worker that finds another
// one's mark at the record; a lost update is one that a worker made and the
// record does not count in the end. The record is a file that is read, then
// written: nothing but the lock keeps the workers apart, as a run with NoLock
// shows.
//
// A node's story is what the library itself says of it: it votes again when a
// vote of it was seen.
//
// At any moment a minority of the nodes is out at most, counting those that came
// back empty and do not vote yet. More would stop the workers, as it must, and
// show nothing.
package demo

import (
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch"
)

// The hidden commands of the program that calls Run: it must call Work and Serve
// for them.
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
	// NoLock lets the workers ignore the lock, to show that the judge sees it.
	NoLock bool
	// Out is what is written to: a live view when it is a terminal, else lines.
	Out *os.File
}

const (
	shortestRun                = 2 * time.Second
	fewestWorkers, mostWorkers = 2, 64
	fewestNodes, mostNodes     = 3, 15
)

// check returns an error that wraps redlatch.ErrInvalid and names the setting.
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

// What the demo locks with. A short TTL makes a short quarantine: a node that
// came back empty stays out for 4 s longer than this.
const (
	ttl        = 2 * time.Second
	recordLock = "demo/record"
	watchLock  = "demo/watch"
)

// config is that of all clients of the demo, who must agree.
func config(nodes []string, label string) redlatch.Config {
	return redlatch.Config{Nodes: nodes, TTL: ttl, MaxTTL: ttl, Deployment: "demo", Label: label}
}
