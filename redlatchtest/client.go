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

// Client is a client of a node in memory. It has the methods of *redlatch.Client, which is in it
// for what wants one. It is safe for concurrent use, but New, Peer, HoldByAnother and Lose may fail
// the test, which only its own goroutine can.
type Client struct {
	*redlatch.Client

	t      testing.TB
	config redlatch.Config
	link   *memory.Link
	server *server
	// another holds what HoldByAnother was asked for, once it was.
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

// nodeName is the node's in errors.
const nodeName = "memory"

// New returns a client of a node of its own, which is closed when the test is done. Of config,
// Nodes, TLS, Replicas and Durable are not used, so that a program's own may be given; the zero
// value has the defaults. What cannot work in it fails the test. In a test that uses
// testing/synctest it must be called inside the bubble. It does not block.
func New(t testing.TB, config redlatch.Config) *Client {
	t.Helper()
	return open(t, config, &server{node: memory.New(time.Now)})
}

// Peer returns another client of the same node, as a second machine is one. Both contend for
// the same locks; Cut, Delay and Calls are of one alone. Else it is as New.
func (c *Client) Peer(config redlatch.Config) *Client {
	c.t.Helper()
	return open(c.t, config, c.server)
}

func open(t testing.TB, config redlatch.Config, s *server) *Client {
	t.Helper()
	c := &Client{t: t, config: config, link: s.node.Link(), server: s}
	config.Replicas, config.Durable = redlatch.Replicas{}, false
	opened, err := hook.Open(config, hook.Surroundings{
		Clock: machine{clock.System, time.Now()},
		Nodes: []hook.Node{{Name: nodeName, Dial: func() driver.Conn { return c.link.Dial() }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Client = opened.(*redlatch.Client)
	t.Cleanup(func() { c.Client.Close() })
	// Else the first lock took more steps than those that follow. Settings that are not those of the
	// node's other clients are an error of that lock, as on a server.
	_ = c.Admit(context.Background(), nodeName)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// machine is a clock that has one time, which may be virtual: the one that runs while a machine
// sleeps never is.
type machine struct {
	clock.Clock
	start time.Time
}

// Now implements clock.Clock.
func (m machine) Now() clock.Instant {
	now := time.Now()
	return clock.Instant{Mono: now, Boot: now.Sub(m.start)}
}

// Call is a call of one of the four methods of redlatch.Locker, of RLock, LockAll, Acquire or Campaign.
type Call struct {
	// Method is "Lock", "RLock", "LockAll", "Acquire", "TryLock", "Do", "TryDo" or "Campaign".
	Method string
	// Name is the lock's, of several names the first.
	Name string
}

// Calls returns the calls of Lock, RLock, LockAll, Acquire, TryLock, Do, TryDo and Campaign that this client
// has had so far, in the order in which they began, those that failed included. What was called on
// the *redlatch.Client inside is not among them.
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

// Lock is that of redlatch.Client.
func (c *Client) Lock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("Lock", name)
	return c.Client.Lock(ctx, name, options...)
}

// RLock is that of redlatch.Client.
func (c *Client) RLock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("RLock", name)
	return c.Client.RLock(ctx, name, options...)
}

// LockAll is that of redlatch.Client.
func (c *Client) LockAll(ctx context.Context, names []string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("LockAll", slices.Concat(names, []string{""})[0])
	return c.Client.LockAll(ctx, names, options...)
}

// Acquire is that of redlatch.Client.
func (c *Client) Acquire(ctx context.Context, name string, k int, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("Acquire", name)
	return c.Client.Acquire(ctx, name, k, options...)
}

// TryLock is that of redlatch.Client.
func (c *Client) TryLock(ctx context.Context, name string, options ...redlatch.Option) (*redlatch.Lock, error) {
	c.note("TryLock", name)
	return c.Client.TryLock(ctx, name, options...)
}

// Do is that of redlatch.Client.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error {
	c.note("Do", name)
	return c.Client.Do(ctx, name, fn, options...)
}

// TryDo is that of redlatch.Client.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error {
	c.note("TryDo", name)
	return c.Client.TryDo(ctx, name, fn, options...)
}

// Campaign is that of redlatch.Client.
func (c *Client) Campaign(ctx context.Context, name string, fn func(ctx context.Context) error, options ...redlatch.Option) error {
	c.note("Campaign", name)
	return c.Client.Campaign(ctx, name, fn, options...)
}
