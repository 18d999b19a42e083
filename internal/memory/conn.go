package memory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// Link is what lies between a client and the node: it can be cut, and slow. It is safe for
// concurrent use, and shared by the connections over it.
type Link struct {
	node  *Node
	cut   atomic.Bool
	delay atomic.Int64
}

// Link returns a way to the node.
func (n *Node) Link() *Link { return &Link{node: n} }

// Cut has the node unable to do anything for the client, or able again: what it is sent is
// answered so and not executed, and wake-ups are lost.
func (k *Link) Cut(cut bool) { k.cut.Store(cut) }

// Delay has every answer and every wake-up come d later, from the next one on. The node executes
// what it is sent at once.
func (k *Link) Delay(d time.Duration) { k.delay.Store(int64(d)) }

// Dial returns a connection over the link.
func (k *Link) Dial() driver.Conn { return &conn{link: k, closed: make(chan struct{})} }

// conn is a connection to a node in memory. Commands are executed by their callers, in turn.
type conn struct {
	link   *Link
	closed chan struct{}
	once   sync.Once
}

var (
	_ driver.Listener = (*conn)(nil)

	errClosed = errors.New("the connection was closed")
	// errCut is the server's own answer, as that of one which is loading its data: after a
	// connection that broke, the client would not connect anew for a while.
	errCut = &driver.ServerError{Text: "LOADING the test has this node answer nothing"}
)

// Do implements driver.Conn.
func (c *conn) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	return c.exchange(ctx, func() (driver.Reply, error) { return c.link.node.do(args) })
}

// EvalSHA implements driver.Conn.
func (c *conn) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	return c.exchange(ctx, func() (driver.Reply, error) { return c.link.node.evalSHA(sha, keys, args) })
}

// exchange has the node execute one command, and waits for as long as its answer takes.
func (c *conn) exchange(ctx context.Context, execute func() (driver.Reply, error)) (driver.Reply, error) {
	if ctx.Err() != nil {
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	select {
	case <-c.closed:
		return driver.Reply{}, driver.NotSent(errClosed)
	default:
	}
	var reply driver.Reply
	var err error = errCut
	if !c.link.cut.Load() {
		reply, err = execute()
	}
	if late := c.wait(ctx, time.Now()); late != nil {
		return driver.Reply{}, late
	}
	return reply, err
}

// wait returns when what the node said at that time arrives, or with the error of its end.
func (c *conn) wait(ctx context.Context, said time.Time) error {
	d := time.Duration(c.link.delay.Load()) - time.Since(said)
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.closed:
		return errClosed
	}
}

// Connections implements driver.Conn: one was made, and never breaks.
func (c *conn) Connections() uint64 { return 1 }

// Close implements driver.Conn.
func (c *conn) Close() { c.once.Do(func() { close(c.closed) }) }

// subscription is a client that is told of wake-ups.
type subscription struct{ messages chan message }

// message is a wake-up, and when it was sent: those that come one right after the other are not each
// late by the delay of the one before.
type message struct {
	text string
	sent time.Time
}

// maxMessages bounds the messages that a client has not taken in yet.
const maxMessages = 256

// Subscribe implements driver.Listener.
func (c *conn) Subscribe(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	if c.link.cut.Load() {
		return driver.NotSent(errors.New("the node does not answer"))
	}
	n, s := c.link.node, &subscription{messages: make(chan message, maxMessages)}
	n.mu.Lock()
	n.subscribers[channel] = s
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.subscribers[channel] == s {
			delete(n.subscribers, channel)
		}
	}()
	ready()
	for {
		select {
		case m := <-s.messages:
			if err := c.wait(ctx, m.sent); err != nil {
				return err
			}
			if !c.link.cut.Load() {
				heard(m.text)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.closed:
			return errClosed
		}
	}
}

// EvalSHAWatching implements driver.Listener: nobody is told of a key that changes.
func (c *conn) EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (reply driver.Reply, watched bool, err error) {
	reply, err = c.EvalSHA(ctx, sha, keys, args)
	return reply, false, err
}

// DoWatching implements driver.Listener.
func (c *conn) DoWatching(ctx context.Context, args ...string) (reply driver.Reply, watched bool, err error) {
	reply, err = c.Do(ctx, args...)
	return reply, false, err
}

// OnChange implements driver.Listener.
func (c *conn) OnChange(func(key string)) {}
