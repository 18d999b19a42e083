package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// Limits of a connection, as the real one has them.
const (
	connectTimeout = time.Second
	replyTimeout   = driver.LongestUnanswered
)

var (
	errKilled  = errors.New("sim: the process was killed")
	errReset   = errors.New("sim: connection reset")
	errRefused = errors.New("sim: connection refused")
	errTimeout = errors.New("sim: connection timed out")
	errSilent  = errors.New("sim: no reply for too long")
	errClosed  = errors.New("sim: closed")
)

// Network is how messages fare between a machine and a node.
type Network struct {
	// Delay is the least one-way delay; Jitter the mean of what is added.
	Delay, Jitter time.Duration
	// Spikes is how often a message takes up to Spike longer.
	Spikes float64
	Spike  time.Duration
	// Cuts is how often a message breaks its connection.
	Cuts float64
	// Snags is how often the way to a node, or the process, is held up, for up to
	// Snag, when the node has just executed a step for it; or, when it has released a
	// key that somebody waits for, the ways to the other nodes, and its answer is lost.
	Snags float64
	Snag  time.Duration
	// Silences is how often the way to a node is held up, for up to Silence, when the node has just
	// told a waiter that it is its turn.
	Silences float64
	Silence  time.Duration
}

// path is the way between one machine and one node. It is guarded by world.mu.
type path struct {
	network               Network
	usual                 Network       // as it was made: read by all
	thereUntil, backUntil time.Duration // partitioned until
	slower, slowUntil     time.Duration // how much, until when
	// trouble is when something was last wrong with it, for those who do not hold world.mu, too.
	trouble atomic.Int64
}

// delay draws how long a message takes that is sent now.
func (p *path) delay(r *rand.Rand, now time.Duration) time.Duration {
	d := p.network.Delay + around(r, p.network.Jitter)
	if now < p.slowUntil {
		d += p.slower
	}
	if r.Float64() < p.network.Spikes {
		d += between(r, 0, p.network.Spike)
		p.disturb(now + d)
	}
	return d
}

func (c *Conn) delay() time.Duration { return c.path.delay(c.rng, c.machine.world.Now()) }

// Conn is a driver.Conn over the simulated network: one stream at a time, which
// is made when a command needs it.
type Conn struct {
	machine *Machine
	node    *Node
	path    *path
	made    atomic.Uint64
	aside   *Conn // of the mutation ReleaseOvertakes

	// Guarded by world.mu.
	rng    *rand.Rand
	stream *stream
	dial   *dial
	closed bool
	// returns counts the commands whose caller has gone.
	returns int
}

var _ driver.Conn = (*Conn)(nil)

// Connections implements driver.Conn.
func (c *Conn) Connections() uint64 { return c.made.Load() }

// EvalSHA implements driver.Conn.
func (c *Conn) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	command := make([]string, 0, 3+len(keys)+len(args))
	command = append(command, "EVALSHA", sha, strconv.Itoa(len(keys)))
	command = append(append(command, keys...), args...)
	if c.aside != nil && sha == script.Releasing.SHA {
		return c.aside.Do(ctx, command...)
	}
	return c.Do(ctx, command...)
}

// Do implements driver.Conn.
func (c *Conn) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if c.machine.world.Mutation == None {
		return c.exchange(ctx, args)
	}
	return c.mutated(ctx, args)
}

// exchange sends one command and waits for its reply.
func (c *Conn) exchange(ctx context.Context, args []string) (driver.Reply, error) {
	m := c.machine
	m.Run()
	m.hesitate(1)
	if err := ctx.Err(); err != nil {
		return driver.Reply{}, driver.NotSent(context.Cause(ctx))
	}
	for {
		s, err := c.connect(ctx)
		if err != nil {
			return driver.Reply{}, driver.NotSent(err)
		}
		m.Run()
		r := c.send(s, args, nil)
		if r == nil {
			continue // it broke in the meantime, and nothing was sent
		}
		defer c.returned()
		select {
		case <-r.done:
			m.hesitate(2)
			return r.reply, r.err
		case <-ctx.Done():
			m.Run()
			m.hesitate(3)
			return driver.Reply{}, context.Cause(ctx)
		}
	}
}

// Close implements driver.Conn.
func (c *Conn) Close() {
	if c.aside != nil {
		c.aside.Close()
	}
	w := c.machine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c.closed = true
	c.sever(errClosed)
}

// dial is one attempt to connect.
type dial struct {
	done   chan struct{}
	stream *stream // set before done is closed
	err    error
	until  time.Duration
}

// connect waits for a stream. Connecting goes on without the caller.
func (c *Conn) connect(ctx context.Context) (*stream, error) {
	w := c.machine.world
	w.mu.Lock()
	if c.stream != nil {
		defer w.mu.Unlock()
		return c.stream, nil
	}
	if c.closed || c.machine.dead {
		defer w.mu.Unlock()
		return nil, errClosed
	}
	d := c.dial
	if d == nil {
		d = &dial{done: make(chan struct{}), until: w.Now() + connectTimeout}
		c.dial = d
		w.after(c.delay()+c.delay(), func() { c.knock(d) })
	}
	w.mu.Unlock()
	select {
	case <-d.done:
		return d.stream, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// knock is the moment at which a connection stands, unless the node does not
// answer just now. The caller holds world.mu.
func (c *Conn) knock(d *dial) {
	w := c.machine.world
	if c.dial != d {
		return // closed or killed
	}
	now := w.Now()
	switch {
	case c.machine.paused != nil || c.node.hung || now < c.path.thereUntil || now < c.path.backUntil:
		if now < d.until {
			w.after(between(c.rng, 20*time.Millisecond, 60*time.Millisecond), func() { c.knock(d) })
			return
		}
		d.err = errTimeout
	case c.node.server == nil:
		d.err = errRefused
	default:
		c.made.Add(1)
		d.stream = newStream(c)
		c.stream = d.stream
	}
	c.dial = nil
	close(d.done)
}

// send puts a command into the stream; nil when that is broken.
func (c *Conn) send(s *stream, args []string, sub *subscription) *request {
	w := c.machine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.stream != s {
		return nil
	}
	r := newRequest(args)
	r.sent, r.done, r.round, r.sub = w.Now(), make(chan struct{}), c.returns, sub
	if c.node.vouching > 0 {
		r.vouched = c.node.vouchedAt
	}
	if sub != nil {
		s.subs = append(s.subs, sub)
	}
	for _, id := range r.acquiring() {
		w.attempted(id)
	}
	s.post(r)
	return r
}

// returned notes that a caller has gone, whose next command must come after its
// last.
func (c *Conn) returned() {
	w := c.machine.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c.returns++
}

// release names the step that has a script of its own.
const release = "release"

// stepOf returns the step that a command has done and its arguments, nil when
// there is none.
func stepOf(args []string) []string {
	if !strings.HasPrefix(args[0], "EVAL") {
		return nil
	}
	n, _ := strconv.Atoi(args[2])
	for _, releasing := range []script.Script{script.Releasing, script.ReleasingAll, script.ReleasingShared, script.ReleasingSlot} {
		if args[1] == releasing.SHA || args[1] == releasing.Text {
			return append([]string{release}, args[3+n:]...)
		}
	}
	if step := args[3+n:]; len(step) > 0 && alike[step[0]] != "" {
		return append([]string{alike[step[0]]}, step[1:]...)
	}
	return args[3+n:]
}

// sever ends the stream, if there is one, for the machine: whatever is under
// way has an unknown outcome. What was sent may still arrive at the node, now
// or later, but in order and without a gap. The caller holds world.mu.
func (c *Conn) sever(err error) {
	if d := c.dial; d != nil && (c.closed || c.machine.dead) {
		c.dial = nil
		d.err = err
		close(d.done)
	}
	s := c.stream
	if s == nil {
		return
	}
	c.stream = nil
	c.path.disturb(c.machine.world.Now())
	s.end(err)
}
