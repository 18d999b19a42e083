// Package hook is the one back door of the library: what the packages beside it, and tests, may
// give a client or learn of it that no user can. The library cannot be imported here, so its types
// are passed as any. Package redlatch sets the functions.
package hook

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Surroundings is what a client has besides its configuration: connections, clocks and chance. For
// a field that is zero the client uses this process's own.
type Surroundings struct {
	// Nodes are the client's nodes, in place of URLs.
	Nodes []Node
	// Dial connects to the node with a name, in place of the URL in the configuration.
	Dial func(name string) (driver.Conn, error)
	// Clock is the machine's clock.
	Clock clock.Clock
	// Draw returns a random duration below d, which is positive.
	Draw func(d time.Duration) time.Duration
	// Random returns random bytes, which make ids differ.
	Random func() [16]byte
	// Batches makes the steps of a single caller go the way of those of many, in batches.
	Batches bool
	// Singly makes a caller that waits for several names take them one by one, even if it has lost
	// no turn.
	Singly bool
}

// Node is a node for which the user has brought a client.
type Node struct {
	Name string
	// Dial returns a connection of this library over the user's client. The library closes the
	// connection, but not the client.
	Dial func() driver.Conn
	// Cluster: the client sends each command to the master that has its key.
	Cluster bool
	// Store, if set, makes a node that is no Redis, which has neither Dial nor Cluster. The node
	// calls changed with each key that callers may wait for and that may have changed, and with ""
	// for all keys. changed does not block.
	Store func(changed func(key string)) Store
}

// Store keeps locks in its own way and has one vote: its answers are those of all its servers
// together. It also keeps the wait queues.
type Store interface {
	quorum.Voter
	Name() string
	Enqueue(ctx context.Context, r vote.Enqueue) vote.Position
	Leave(ctx context.Context, key, waiter string)
	HasWaiters(ctx context.Context, key string) (somebody bool, err error)
	// Detach leaves the lease of an id to the program that has the id: Close does not end it, and
	// it ends with its TTL if nobody extends it before that. Prolong and Drop are Extend and
	// Release for an id that another client may have taken. What they did to a lease is not known
	// if no answer came.
	Detach(key, id string)
	Prolong(ctx context.Context, r vote.Extend) vote.Answer
	Drop(ctx context.Context, r vote.Release) vote.Answer
	// Look answers who holds the lock, or NotOurs if nobody does, and returns those who wait for
	// it, in their order. Left is the TTL that the holder wrote last.
	Look(ctx context.Context, key string) (holder vote.Answer, waiting []string)
	// Keys returns the keys of the locks that are there, and some of locks that are not. The answer
	// is Granted if they are all.
	Keys(ctx context.Context) ([]string, vote.Answer)
	// Watch answers vote.Held with who has the key and, in Left, for how long at least, or
	// vote.NotOurs when nobody has it. It never names an earlier holder than an earlier answer did.
	// watched: its next change is told, unless until ends before.
	Watch(ctx, until context.Context, key string) (a vote.Answer, watched bool)
	// Connect waits for the first contact.
	Connect(ctx context.Context) error
	// Err returns the setting that does not fit these servers, once that is known.
	Err() error
	// The methods below are those of any node of a client.
	Reached() bool
	Unreachable() bool
	Cut()
	Close()
}

// Open opens a *redlatch.Client for a redlatch.Config.
var Open func(config any, around Surroundings) (client any, err error)

// Lease is a lock as its validity is judged.
type Lease interface {
	// Deadline is the end of the validity. End is earlier by the guard: from then on the lock
	// counts as lost.
	Deadline() clock.Instant
	End() clock.Instant
	Token() uint64
	Err() error
	// HolderID is the value of the lock's keys.
	HolderID() string
}

// LeaseOf returns the lease of a *redlatch.Lock, or of the lock that a Context belongs to.
var LeaseOf func(lockOrContext any) Lease

// Client is what package oneshot uses of a *redlatch.Client.
type Client interface {
	// Enter begins a call. Close waits for it until leave is called. Enter returns an error when
	// the client was closed or its nodes turned out to be misnamed.
	Enter() (leave func(), err error)
	// Key returns the key of the lock name.
	Key(name string) (string, error)
	// WholeTTL rounds a TTL down to the servers' grain, and refuses one that cannot work.
	WholeTTL(ttl time.Duration) (time.Duration, error)
	// NoQuarantine is Config.NoQuarantine.
	NoQuarantine() bool
	// NodeTimeout is Config.NodeTimeout.
	NodeTimeout() time.Duration
	// Nodes returns the client's nodes, in the order of its configuration.
	Nodes() []OneShotNode
	// Put puts a question to all nodes. granted reports whether a quorum granted it.
	Put(ctx context.Context, p quorum.Poll) (granted bool, answers []vote.Answer)
	// Answers returns answers as []redlatch.NodeAnswer. Holder reads a key's value as a
	// redlatch.Holder.
	Answers(answers []vote.Answer) any
	Holder(id string) any
	// Failure returns the *redlatch.QuorumError of a vote that did not get its quorum.
	Failure(op, name string, answers []vote.Answer) error
	// Lose makes the client, if it holds the lock with this holder id, lose it as if its nodes had
	// said that they do not have it.
	Lose(id string)
}

// OneShotNode is what package oneshot uses of a node. way says what the steps may be made of.
type OneShotNode interface {
	// Take sets the key. Prolong extends it and Drop deletes it, if it is held under the request's
	// ID.
	Take(ctx context.Context, way node.Way, r vote.Acquire) vote.Answer
	Prolong(ctx context.Context, way node.Way, r vote.Extend) vote.Answer
	Drop(ctx context.Context, way node.Way, r vote.Release) vote.Answer
	// Query answers who has the key, in Holder, and for how long.
	Query(ctx context.Context, key string) vote.Answer
}

// ClientOf returns the inside of a *redlatch.Client.
var ClientOf func(client any) Client

// Patient is a node that package doctor examines. Nothing has been sent to it yet.
type Patient struct {
	Name string
	// User is the user in the node's URL.
	User string
	// Node must be closed. It is nil for a Cluster, and Cluster is nil for a server.
	Node    *node.Node
	Cluster *node.Cluster
	// Seeds are addresses of some servers of the Cluster, and Dial connects to one of them.
	Seeds []string
	Dial  func(address string) (driver.Conn, error)
}

// Close closes the node. It waits for no answer.
func (p Patient) Close() {
	if p.Cluster != nil {
		p.Cluster.Cut()
		p.Cluster.Close()
		return
	}
	p.Node.Cut()
	p.Node.Close()
}

// Patients returns the nodes of a redlatch.Config, the keys of the locks with these names, and how
// long connecting to a node may take. The error wraps redlatch.ErrInvalid; then there is nothing to
// close.
var Patients func(config any, names []string) (patients []Patient, keys []string, connect time.Duration, err error)
