package node

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// ear is the subscription by which the node calls this client.
type ear struct {
	mu sync.Mutex // guards what follows; nothing is called while it is held
	// attempt is the subscription that stands or is being made; nil when there is
	// none.
	attempt *subscription
	// deaf is the connection on which the server refused to subscribe.
	deaf uint64
}

// subscription is one SUBSCRIBE and what is heard by it.
type subscription struct {
	// settled is closed when it stands, or has failed.
	settled chan struct{}
	settle  sync.Once
}

// Stand joins the line for the claim's record, or says that the waiter is still
// there, and reports its place. With watch, a change of the record is told to
// Options.Changed as far as the server can.
func (n *Node) Stand(ctx context.Context, c vote.Claim, watch bool) vote.Standing {
	hears := n.listen(ctx)
	waiter := strings.TrimPrefix(c.Place.Waiter, "-")
	if !hears {
		waiter = "-" + waiter
	}
	keys := []string{c.Record, n.admissionKey, c.Next}
	args := []string{script.Stand, waiter, strconv.FormatUint(c.Place.Ticket, 10), ""}
	watched := false
	reply, err := n.cast(ctx, func(seen *sighting) (reply driver.Reply, err error) {
		args[3] = seen.expected
		if l, ok := n.conn.(driver.Listener); ok && watch {
			reply, watched, err = l.EvalSHAWatching(ctx, n.voting.SHA, keys, args)
			return reply, err
		}
		return n.conn.EvalSHA(ctx, n.voting.SHA, keys, args)
	})
	s := vote.Standing{Hears: hears, Watched: watched}
	s.Place.Waiter = waiter
	if err != nil || reply.Kind != driver.Array || len(reply.Array) < 4 {
		s.Answer = n.standing(reply, err)
		return s
	}
	s.Place.Ticket, err = strconv.ParseUint(reply.Array[1].Text, 10, 64)
	s.Answer = vote.Answer{Verdict: vote.Held, Holder: reply.Array[2].Text, Left: time.Duration(reply.Array[3].Int) * time.Millisecond, Err: err}
	s.Ahead = int(reply.Array[0].Int)
	if len(reply.Array) > 4 {
		s.From = reply.Array[4].Text
	}
	return s
}

// Leave gives the waiter's place up. It waits for the answer or for ctx; a place
// that is not given up lapses.
func (n *Node) Leave(ctx context.Context, record, waiter string) {
	counter, next := ClaimKeys(record)
	n.release(ctx, vote.Claim{
		Record: record, Counter: counter, Next: next,
		ID:    waiter, // which no record has
		Place: vote.Place{Waiter: waiter},
	})
}

// Waits reports whether anybody stands in line for the record on this node. It waits for
// the answer or for ctx.
func (n *Node) Waits(ctx context.Context, record string) (somebody bool, err error) {
	reply, err := n.command(ctx, "GET", NextKey(record))
	return err == nil && reply.Kind != driver.Null, err
}

// listen sees to it that the node can call this client, and reports whether it
// can.
func (n *Node) listen(ctx context.Context) bool {
	l, ok := n.conn.(driver.Listener)
	if !ok || n.connect(ctx) != nil {
		return false
	}
	connection := n.link.greeted.Load()
	n.ear.mu.Lock()
	s := n.ear.attempt
	start := s == nil && n.ear.deaf != connection
	if start {
		s = &subscription{settled: make(chan struct{})}
		n.ear.attempt = s
	}
	n.ear.mu.Unlock()
	if s == nil {
		return false
	}
	if start {
		n.background.Go(func() { n.hear(l, s, connection) })
	}
	select {
	case <-s.settled:
	case <-ctx.Done():
		return false
	}
	n.ear.mu.Lock()
	defer n.ear.mu.Unlock()
	return n.ear.attempt == s
}

// hear takes in the node's calls until the connection breaks.
func (n *Node) hear(l driver.Listener, s *subscription, connection uint64) {
	settle := func() { s.settle.Do(func() { close(s.settled) }) }
	err := l.Subscribe(n.life, callChannel(n.options.Waiter), settle, func(message string) {
		if c, ok := parseCall(message); ok {
			n.options.Called(c)
		}
	})
	n.ear.mu.Lock()
	n.ear.attempt = nil
	if isReply(err) {
		n.ear.deaf = connection
	}
	n.ear.mu.Unlock()
	settle()
	if n.life.Err() == nil {
		n.options.Changed("")
	}
}

// parseCall reads what publish.lua publishes.
func parseCall(message string) (c vote.Call, ok bool) {
	waiter, rest, _ := strings.Cut(message, " ")
	length, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return c, false
	}
	return vote.Call{Waiter: waiter, From: rest[:n], Record: rest[n:]}, true
}
