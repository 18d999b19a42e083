package sim

import (
	"context"

	"github.com/redlatch/redlatch/internal/driver"
)

var _ driver.Listener = (*Conn)(nil)

// subscription is what one SUBSCRIBE hears. It is guarded by world.mu, but for
// its channels.
type subscription struct {
	channel  string
	messages chan string
	over     chan struct{} // closed with the stream
	ended    bool
}

func (s *subscription) end() {
	if !s.ended {
		s.ended = true
		close(s.over)
	}
}

// Subscribe implements driver.Listener.
func (c *Conn) Subscribe(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	s, err := c.connect(ctx)
	if err != nil {
		return driver.NotSent(err)
	}
	sub := &subscription{channel: channel, messages: make(chan string, 1024), over: make(chan struct{})}
	r := c.send(s, []string{"SUBSCRIBE", channel}, sub)
	if r == nil {
		return driver.NotSent(errReset)
	}
	select {
	case <-r.done:
		if r.err != nil {
			return r.err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ready()
	for {
		select {
		case message := <-sub.messages:
			c.machine.Run()
			c.machine.hesitate(4)
			heard(message)
		case <-sub.over:
			return errReset
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// EvalSHAWatching implements driver.Listener, for a server that tells of no
// changes.
func (c *Conn) EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (reply driver.Reply, watched bool, err error) {
	reply, err = c.EvalSHA(ctx, sha, keys, args)
	return reply, false, err
}

// DoWatching implements driver.Listener.
func (c *Conn) DoWatching(ctx context.Context, args ...string) (reply driver.Reply, watched bool, err error) {
	reply, err = c.Do(ctx, args...)
	return reply, false, err
}

// OnChange implements driver.Listener.
func (c *Conn) OnChange(func(key string)) {}

// subscribe has the stream hear what is published. The caller holds world.mu.
func (n *Node) subscribe(s *stream, r *request) {
	n.listening[r.sub] = s
	n.listeners = append(n.listeners, r.sub)
}

// copies draws how often a message arrives that nobody answers: not at all, or twice, as often as
// connections break. The caller holds world.mu.
func (c *Conn) copies() int {
	if c.rng.Float64() >= 4*c.path.network.Cuts {
		return 1
	}
	c.path.disturb(c.machine.world.Now())
	return 2 * c.rng.IntN(2)
}

// publish sends a message to all who listen, as far as the server knows. The
// caller holds world.mu.
func (n *Node) publish(channel, message string) (heard int) {
	for _, sub := range n.listeners {
		s := n.listening[sub]
		if sub.channel != channel || sub.ended || s.server != n.server {
			continue
		}
		heard++
		for range s.conn.copies() {
			s.back.push(&request{sub: sub, message: message}, s.conn.delay())
		}
		s.silence()
	}
	return heard
}
