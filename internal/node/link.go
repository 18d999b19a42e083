package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// redialPause keeps a node that refuses connections from being dialled for every command.
const redialPause = 50 * time.Millisecond

// link is the state of a node's connection. Connecting does not depend on a caller's ctx: the short
// time of an attempt must not end it half-way, or a distant node would never be reached.
type link struct {
	// connected is the number of the connection whose server was inspected, 0
	// when there is none.
	connected atomic.Uint64

	// seen is what the last inspection found: the run, and the connection that it was found
	// through.
	seen atomic.Pointer[sighting]

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	current *underWay  // a handshake
	// failure is why the last handshake failed, nil if it did not. ended is when it ended.
	failure error
	ended   time.Time
}

// sighting is what was found of the server behind a connection.
type sighting struct {
	connection uint64
	// run is that of the server, and history is its run and its replication id.
	run, history string
	// expected is what a vote expects of the node's admission key.
	expected string
	// refusal is why the node must not vote for this client, in a deployment whose votes ask for no
	// admission; at is when that was last looked at.
	refusal error
	at      clock.Instant
}

// underWay is a handshake or an inspection that is under way, for which callers wait.
type underWay struct {
	done chan struct{}
	err  error // valid when done is closed
}

// Connect waits until the connection stands and its server was inspected, or for ctx. The error wraps
// driver.ErrNotSent.
func (n *Node) Connect(ctx context.Context) error {
	if n.connected() {
		return nil
	}
	return n.connectAnew(ctx)
}

// connected reports whether the connection stands and its server was inspected.
func (n *Node) connected() bool {
	connected := n.link.connected.Load()
	return connected != 0 && connected == n.conn.Connections()
}

// connectAnew waits until the connection stands and its server was inspected once more. The error wraps
// driver.ErrNotSent.
func (n *Node) connectAnew(ctx context.Context) error {
	h, err := n.link.join(n.startHandshake)
	if err != nil {
		return err
	}
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return driver.NotSent(errors.New(n.link.connecting()))
	}
}

// connecting says what a caller has not waited for, and how the last handshake failed: where one takes
// longer than a step, hardly any caller would learn that.
func (l *link) connecting() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return "still connecting"
	}
	return "still connecting; the try before failed: " + strings.TrimPrefix(l.failure.Error(), driver.ErrNotSent.Error()+": ")
}

// join returns the handshake under way, or starts one. If the last one has just failed, it returns
// that error.
func (l *link) join(start func(*underWay)) (*underWay, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		return l.current, nil
	}
	if l.failure != nil && time.Since(l.ended) < redialPause {
		return nil, l.failure
	}
	l.current = &underWay{done: make(chan struct{})}
	start(l.current)
	return l.current, nil
}

func (n *Node) startHandshake(h *underWay) {
	n.background.Go(func() {
		ctx, cancel := context.WithTimeout(n.life, n.options.ConnectTimeout)
		defer cancel()
		h.err = n.shakeHands(ctx)
		if errors.Is(h.err, context.DeadlineExceeded) || errors.Is(h.err, os.ErrDeadlineExceeded) {
			h.err = driver.NotSent(errNoAnswer) // this says more than that a deadline has passed
		}
		n.link.mu.Lock()
		n.link.current, n.link.failure, n.link.ended = nil, h.err, time.Now()
		n.link.mu.Unlock()
		n.noteReach(h.err)
		close(h.done)
	})
}

// shakeHands connects and learns which server answers. It changes nothing there.
func (n *Node) shakeHands(ctx context.Context) error {
	// rule: looking-writes-nothing
	connection, err := n.inspectConnection(ctx)
	switch {
	case errors.Is(err, driver.ErrNotSent):
		return err
	case err != nil:
		return driver.NotSent(err)
	}
	if err := n.probeReplicas(ctx); err != nil {
		return driver.NotSent(err)
	}
	if connection != n.conn.Connections() {
		return driver.NotSent(errors.New("the connection broke as soon as it was made"))
	}
	n.link.connected.Store(connection)
	return nil
}

// distrust has the next command inspect the server anew.
func (l *link) distrust() { l.connected.Store(0) }
