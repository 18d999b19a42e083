package redlatchtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/memory"
)

// Client is a client of a node in memory. It has the methods of *redlatch.Client, which it embeds
// for code that needs one. It is safe for concurrent use; but New, Peer, HoldByAnother and Lose may
// fail the test, and must therefore be called by the test's own goroutine.
type Client struct {
	*redlatch.Client

	t      testing.TB
	config redlatch.Config
	link   *memory.Link
	server *server
	// another holds what HoldByAnother was asked for. It is nil before the first such call.
	another *Client
	once    sync.Once

	mu    sync.Mutex // guards calls
	calls []Call
}

var _ redlatch.Locker = (*Client)(nil)

// server is a node and its clients.
type server struct {
	node *memory.Node

	mu      sync.Mutex // guards clients
	clients []*Client
}

// nodeName is the name of the node in errors.
const nodeName = "memory"

// New returns a client of a new node, and closes the client when the test is done. It does not use
// Nodes, TLS, Replicas and Durable of config, so a program's own Config may be given; the zero
// value has the defaults. A setting that cannot work fails the test. In a test that uses
// testing/synctest, New must be called inside the bubble. It does not block.
func New(t testing.TB, config redlatch.Config) *Client {
	t.Helper()
	return open(t, config, &server{node: memory.New(time.Now)})
}

// Peer returns another client of the same node, like a second machine. Both contend for the same
// locks; Cut, Delay and Calls apply to one client alone. Otherwise Peer is like New.
func (c *Client) Peer(config redlatch.Config) *Client {
	c.t.Helper()
	return open(c.t, config, c.server)
}

func open(t testing.TB, config redlatch.Config, s *server) *Client {
	t.Helper()
	c := &Client{t: t, config: config, link: s.node.Link(), server: s}
	config.Replicas, config.Durable = redlatch.Replicas{}, false
	opened, err := hook.Open(config, hook.Surroundings{
		Clock: clock.Awake(),
		Nodes: []hook.Node{{Name: nodeName, Dial: func() driver.Conn { return c.link.Dial() }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Client = opened.(*redlatch.Client)
	t.Cleanup(func() { c.Client.Close() })
	// Otherwise the first lock would take more steps than those that follow. If the settings are
	// not those of the node's other clients, that lock gets the error, as on a server.
	_ = c.Admit(context.Background(), nodeName)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// Call is a call of one of the methods that Calls lists.
type Call struct {
	// Method is "Lock", "RLock", "LockAll", "Acquire", "TryLock", "Do", "TryDo" or "Campaign".
	Method string
	// Name is the lock's name; for several names, the first.
	Name string
}

// Calls returns the calls of Lock, RLock, LockAll, Acquire, TryLock, Do, TryDo and Campaign that
// were made on this client so far, in the order in which they began, including those that failed.
// Calls on the embedded *redlatch.Client are not among them.
func (c *Client) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

func (c *Client) note(method, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, Call{Method: method, Name: name})
}

// Lock is redlatch.Client.Lock; Calls lists the call.
func (c *Client) Lock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("Lock", name)
	return c.Client.Lock(ctx, name, options...)
}

// RLock is redlatch.Client.RLock; Calls lists the call.
func (c *Client) RLock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("RLock", name)
	return c.Client.RLock(ctx, name, options...)
}

// LockAll is redlatch.Client.LockAll; Calls lists the call.
func (c *Client) LockAll(ctx context.Context, names []string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("LockAll", slices.Concat(names, []string{""})[0])
	return c.Client.LockAll(ctx, names, options...)
}

// Acquire is redlatch.Client.Acquire; Calls lists the call.
func (c *Client) Acquire(ctx context.Context, name string, k int, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("Acquire", name)
	return c.Client.Acquire(ctx, name, k, options...)
}

// TryLock is redlatch.Client.TryLock; Calls lists the call.
func (c *Client) TryLock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("TryLock", name)
	return c.Client.TryLock(ctx, name, options...)
}

// Do is redlatch.Client.Do; Calls lists the call.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error {
	c.note("Do", name)
	return c.Client.Do(ctx, name, fn, options...)
}

// TryDo is redlatch.Client.TryDo; Calls lists the call.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error {
	c.note("TryDo", name)
	return c.Client.TryDo(ctx, name, fn, options...)
}

// Campaign is redlatch.Client.Campaign; Calls lists the call.
func (c *Client) Campaign(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error {
	c.note("Campaign", name)
	return c.Client.Campaign(ctx, name, fn, options...)
}
