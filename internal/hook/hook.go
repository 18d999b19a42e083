// Package hook is the one back door of the library: what the modules beside it,
// and tests, may give a client or learn of a lock that no user can. The library
// cannot be imported here, so its types go by any. Package redlatch sets the
// functions.
package hook

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// Surroundings is what a client has beside its configuration: connections, clocks and
// chance. What is left zero is that of this process.
type Surroundings struct {
	// Nodes are the client's nodes, in place of URLs.
	Nodes []Node
	// Dial connects to the node of a name, which a URL of the configuration leads to.
	Dial func(name string) (driver.Conn, error)
	// Clock is the machine's.
	Clock clock.Clock
	// Draw returns a random duration below d, which is positive.
	Draw func(d time.Duration) time.Duration
	// Random fills b with random bytes, by which ids differ.
	Random func(b []byte)
	// Batches has the steps of a single caller go the way of those of many, which are
	// put together.
	Batches bool
}

// Node is a node that a client was brought for.
type Node struct {
	Name string
	// Dial returns a connection of the library's own over the client, which it
	// closes; the client it does not.
	Dial func() driver.Conn
	// Cluster: the client sends each command to the master that has its key.
	Cluster bool
}

// Open opens a *redlatch.Client for a redlatch.Config.
var Open func(config any, around Surroundings) (client any, err error)

// Lease is a lock as its judge sees it.
type Lease interface {
	// Deadline is the end of the validity, End the moment before it, by the guard, at
	// which the lock counts as lost.
	Deadline() clock.Instant
	End() clock.Instant
	Token() uint64
	Err() error
	// HolderID is the value of the lock's keys.
	HolderID() string
}

// LeaseOf returns the lease of a *redlatch.Lock, or of the lock whose Context is given.
var LeaseOf func(lockOrContext any) Lease
