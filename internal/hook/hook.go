// Package hook is the one back door of the library: what the packages beside it,
// and tests, may give a client or learn of it that no user can. The library
// cannot be imported here, so its types go by any. Package redlatch sets the
// functions.
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
	// Random returns random bytes, by which ids differ.
	Random func() [16]byte
	// Batches has the steps of a single caller go the way of those of many, which are
	// put together.
	Batches bool
	// Singly has who waits for several names take them one by one, though no turn was lost.
	Singly bool
}

// Node is a node that a client was brought for.
type Node struct {
	Name string
	// Dial returns a connection of the library's own over the client, which it
	// closes; the client it does not.
	Dial func() driver.Conn
	// Cluster: the client sends each command to the master that has its key.
	Cluster bool
	// Store, if any, is a node that is no Redis, and has neither Dial nor Cluster. It calls
	// changed, which does not block, with each key that callers may wait for and that may have
	// changed, and with "" for all.
	Store func(changed func(key string)) Store
}

// Store keeps locks in its own way, and has one vote: its answers are those of all its servers.
// It keeps the wait queues, too.
type Store interface {
	quorum.Voter
	Name() string
	Enqueue(ctx context.Context, r vote.Enqueue) vote.Position
	Leave(ctx context.Context, key, waiter string)
	HasWaiters(ctx context.Context, key string) (somebody bool, err error)
	// Detach leaves the lease of an id to the program that has the id: Close does not end it, and if nobody
	// has extended it before, its end comes with its TTL. Prolong and Drop are Extend and Release for
	// an id that another client may have taken; what they may have done to a lease of which no
	// answer came is not known.
	Detach(key, id string)
	Prolong(ctx context.Context, r vote.Extend) vote.Answer
	Drop(ctx context.Context, r vote.Release) vote.Answer
	// Look says who holds the lock, or NotOurs for nobody, and who waits for it, in their order.
	// Left is the TTL that the holder has written last.
	Look(ctx context.Context, key string) (holder vote.Answer, waiting []string)
	// Keys are those of the locks that are there, and of some that are not; Granted, if they are all.
	Keys(ctx context.Context) ([]string, vote.Answer)
	// Watch answers vote.Held with who has the key and, in Left, for how long at least, or
	// vote.NotOurs when nobody has: no earlier holder than an earlier answer had. watched: its next
	// change is told, unless until ends before.
	Watch(ctx, until context.Context, key string) (a vote.Answer, watched bool)
	// Connect waits for the first contact.
	Connect(ctx context.Context) error
	// Err is the setting that does not fit these servers, once that is known.
	Err() error
	// These are as for any node of a client.
	Reached() bool
	Unreachable() bool
	Cut()
	Close()
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

// Client is a *redlatch.Client as package oneshot asks it.
type Client interface {
	// Enter begins a call, which Close waits for until leave is called. It returns an error
	// when the client was closed or its nodes turned out to be misnamed.
	Enter() (leave func(), err error)
	// Key returns the key of the lock name.
	Key(name string) (string, error)
	// WholeTTL cuts a TTL to the servers' grain, and refuses one that cannot work.
	WholeTTL(ttl time.Duration) (time.Duration, error)
	// NoQuarantine is Config.NoQuarantine.
	NoQuarantine() bool
	// Wall is the wall clock's time.
	Wall() time.Time
	// ALittle is how long the rest of the nodes are waited for where it took took to hear a
	// quorum of them.
	ALittle(took time.Duration) time.Duration
	// Nodes are the client's, in the order of its configuration.
	Nodes() []OneShotNode
	// Put puts a question to all nodes: granted when a quorum did.
	Put(ctx context.Context, p quorum.Poll) (granted bool, answers []vote.Answer)
	// Answers are answers as []redlatch.NodeAnswer, Holder reads a key's value as a
	// redlatch.Holder.
	Answers(answers []vote.Answer) any
	Holder(id string) any
	// Failure is the *redlatch.QuorumError of a vote that did not get its quorum.
	Failure(op, name string, answers []vote.Answer) error
	// Lose has the lock that is held under this holder id, if the client holds it, be lost, as
	// when its nodes have said that they do not have it.
	Lose(id string)
}

// OneShotNode is a node as package oneshot asks it. The steps are made of what way allows.
type OneShotNode interface {
	// Take sets the key, Prolong and Drop extend and delete it where it is held under the
	// request's ID.
	Take(ctx context.Context, way node.Way, r vote.Acquire) vote.Answer
	Prolong(ctx context.Context, way node.Way, r vote.Extend) vote.Answer
	Drop(ctx context.Context, way node.Way, r vote.Release) vote.Answer
	// Query answers who has the key, in Holder, and for how long.
	Query(ctx context.Context, key string) vote.Answer
}

// ClientOf returns the inside of a *redlatch.Client.
var ClientOf func(client any) Client

// Patient is a node that package doctor examines. Nothing was sent to it yet.
type Patient struct {
	Name string
	// User is that of the node's URL.
	User string
	// Node is to be closed. It is nil for a Cluster, as Cluster is for a server.
	Node    *node.Node
	Cluster *node.Cluster
	// Seeds are addresses of some servers of the Cluster, and Dial connects to one of them.
	Seeds []string
	Dial  func(address string) (driver.Conn, error)
}

// Close closes the node.
func (p Patient) Close() {
	if p.Cluster != nil {
		p.Cluster.Close()
		return
	}
	p.Node.Close()
}

// Patients returns the nodes of a redlatch.Config, the keys of the locks names, and how long
// to connect to a node may take. The error wraps redlatch.ErrInvalid; then nothing is to be
// closed.
var Patients func(config any, names []string) (patients []Patient, keys []string, connect time.Duration, err error)
