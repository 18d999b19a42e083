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

// wakeUps is the subscription by which the node wakes up waiters of this client.
type wakeUps struct {
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

// Enqueue takes a place in the wait queue for the key, or says that the waiter is still
// there, and reports its position. With r.Watch, a change of the key is told to
// Options.Changed as far as the server can.
func (n *Node) Enqueue(ctx context.Context, r vote.Enqueue) vote.Position {
	hears := n.listen(ctx)
	waiter, reads := strings.CutPrefix(r.Ticket.Waiter, vote.Reader)
	waiter = strings.TrimPrefix(waiter, "-")
	if !hears {
		waiter = "-" + waiter
	}
	if reads {
		waiter = vote.Reader + waiter
	}
	keys := []string{r.Key, n.admissionKey, NextKey(r.Key)}
	args := []string{script.Enqueue, waiter, strconv.FormatUint(r.Ticket.Number, 10), ""}
	if r.Slots > 0 {
		args[0], args = script.EnqueueSlot, append(args, strconv.Itoa(int(r.Slots)))
	}
	watched := false
	reply, _, err := n.cast(ctx, func(seen *sighting) (reply driver.Reply, err error) {
		args[3] = seen.expected
		if l, ok := n.conn.(driver.Listener); ok && r.Watch {
			reply, watched, err = l.EvalSHAWatching(ctx, n.voting.SHA, keys, args)
			return reply, err
		}
		return n.conn.EvalSHA(ctx, n.voting.SHA, keys, args)
	})
	s := vote.Position{Hears: hears, Watched: watched}
	s.Ticket.Waiter = waiter
	if err != nil || reply.Kind != driver.Array || len(reply.Array) < 4 {
		s.Answer = n.unlessScriptIsGone(reply, err)
		return s
	}
	s.Ticket.Number, err = strconv.ParseUint(reply.Array[1].Text, 10, 64)
	s.Answer = vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(reply.Array[2].Text), Left: time.Duration(reply.Array[3].Int) * time.Millisecond, Err: err}
	s.Ahead = int(reply.Array[0].Int)
	if len(reply.Array) > 4 {
		s.From = reply.Array[4].Text
	}
	return s
}

// Leave gives the waiter's place up. It waits for the answer or for ctx; a place
// that is not given up lapses.
func (n *Node) Leave(ctx context.Context, key, waiter string) {
	n.release(ctx, vote.Release{
		Key:    key,
		ID:     waiter, // which no key has
		Ticket: vote.Ticket{Waiter: waiter},
	})
}

// HasWaiters reports whether anybody is in the wait queue for the key on this node. It waits
// for the answer or for ctx.
func (n *Node) HasWaiters(ctx context.Context, key string) (somebody bool, err error) {
	reply, err := n.command(ctx, "GET", NextKey(key))
	return err == nil && reply.Kind != driver.Null, err
}

// listen sees to it that the node can call this client, and reports whether it
// can.
func (n *Node) listen(ctx context.Context) bool {
	l, ok := n.conn.(driver.Listener)
	if !ok || n.connect(ctx) != nil {
		return false
	}
	connection := n.link.connected.Load()
	n.wakeUps.mu.Lock()
	s := n.wakeUps.attempt
	start := s == nil && n.wakeUps.deaf != connection
	if start {
		s = &subscription{settled: make(chan struct{})}
		n.wakeUps.attempt = s
	}
	n.wakeUps.mu.Unlock()
	if s == nil {
		return false
	}
	if start {
		n.background.Go(func() { n.receive(l, s, connection) })
	}
	if !s.await(ctx) {
		return false
	}
	n.wakeUps.mu.Lock()
	defer n.wakeUps.mu.Unlock()
	return n.wakeUps.attempt == s
}

// hasSettled reports whether the subscription has settled.
func (s *subscription) hasSettled() bool {
	select {
	case <-s.settled:
		return true
	default:
		return false
	}
}

// await reports whether the subscription has settled in half of the time that ctx leaves: one
// that takes a connection of its own is slow, and the step has to be sent yet.
func (s *subscription) await(ctx context.Context) bool {
	if s.hasSettled() {
		return true
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	select {
	case <-s.settled:
		return true
	case <-ctx.Done():
		return false
	}
}

// receive takes in the node's calls until the connection breaks.
func (n *Node) receive(l driver.Listener, s *subscription, connection uint64) {
	settle := func() { s.settle.Do(func() { close(s.settled) }) }
	err := l.Subscribe(n.life, wakeUpChannel(n.options.Waiter), settle, func(message string) {
		if w, ok := parseWakeUp(message); ok {
			n.options.Woken(w)
		}
	})
	stood := s.hasSettled() // else nobody has relied on it
	n.wakeUps.mu.Lock()
	n.wakeUps.attempt = nil
	if isReply(err) {
		n.wakeUps.deaf = connection
	}
	n.wakeUps.mu.Unlock()
	settle()
	if stood && n.life.Err() == nil {
		n.options.Changed("")
	}
}

// parseWakeUp reads what publish.lua publishes.
func parseWakeUp(message string) (w vote.WakeUp, ok bool) {
	waiter, rest, _ := strings.Cut(message, " ")
	length, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return w, false
	}
	return vote.WakeUp{Waiter: waiter, From: rest[:n], Key: rest[n:]}, true
}
