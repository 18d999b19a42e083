package node

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// In a Cluster each slot that is waited in has a subscription, at the slot's master.
const (
	// maxSubscriptions is how many a client has there. Who waits in further slots looks.
	maxSubscriptions = 1024
	// subscriptionIdle is how long one is kept that nobody has used: who waits uses it with each
	// heartbeat.
	subscriptionIdle = 4 * script.Patience
	// resubscribePause is how long after its end the next is made, which may find the slot still
	// on its way.
	resubscribePause = 100 * time.Millisecond
)

// wakeUps is the subscription by which the node wakes up waiters of this client.
type wakeUps struct {
	mu sync.Mutex // guards what follows; nothing is called while it is held
	// attempt is the subscription that stands or is being made; nil when there is
	// none.
	attempt *subscription
	// deaf is the connection on which the server refused to subscribe.
	deaf uint64
	// ended is when the last one of a slot ended.
	ended time.Time
}

// subscription is one SUBSCRIBE, or SSUBSCRIBE, and what is heard by it.
type subscription struct {
	// settled is closed when it stands, or has failed.
	settled chan struct{}
	settle  sync.Once
	// end ends it. Of a slot, run is the server's that had it then, and used when it was last
	// asked for, which wakeUps.mu guards.
	end  context.CancelFunc
	run  string
	used time.Time
}

// subscriber is how the connection subscribes, nil where it cannot.
func (n *Node) subscriber() func(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	switch l := n.conn.(type) {
	case driver.Listener:
		return l.Subscribe
	case driver.ShardListener:
		return l.SubscribeShard
	}
	return nil
}

// inSlot is a waiter's name with the slot's tag, by which the scripts know that its channel lies in
// the slot. Where the node is no slot it is the name.
func (n *Node) inSlot(waiter string) string {
	if !n.isSlot() {
		return waiter
	}
	return "{" + n.options.slotTag + "}" + waiter
}

// listen sees to it that the node can call this client, and reports whether it
// can.
func (n *Node) listen(ctx context.Context) bool {
	subscribe := n.subscriber()
	if subscribe == nil || n.connect(ctx) != nil {
		return false
	}
	s := n.subscription(subscribe)
	if s == nil || !s.await(ctx) {
		return false
	}
	n.wakeUps.mu.Lock()
	defer n.wakeUps.mu.Unlock()
	return n.wakeUps.attempt == s
}

// subscription returns the one that stands or is being made, or has one made; nil if there can
// be none.
func (n *Node) subscription(subscribe func(context.Context, string, func(), func(string)) error) *subscription {
	connection, run := n.link.connected.Load(), ""
	if seen := n.link.seen.Load(); seen != nil && n.isSlot() {
		run = seen.run
	}
	w := &n.wakeUps
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.attempt; s != nil && s.run != run {
		s.end() // the slot is elsewhere, and where it was there may be nobody to say so
		w.attempt, w.ended = nil, time.Time{}
	}
	if w.attempt == nil && w.deaf != connection && (!n.isSlot() || time.Since(w.ended) > resubscribePause && n.options.subscriptions.take()) {
		s := &subscription{settled: make(chan struct{}), run: run}
		var life context.Context
		life, s.end = context.WithCancel(n.life)
		w.attempt = s
		n.background.Go(func() { n.receive(life, s, connection, subscribe) })
	}
	if w.attempt != nil {
		w.attempt.used = time.Now()
	}
	return w.attempt
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

// receive takes in the node's calls until the connection breaks, or in a Cluster, the slot moves or
// nobody has waited for long.
func (n *Node) receive(ctx context.Context, s *subscription, connection uint64, subscribe func(context.Context, string, func(), func(string)) error) {
	defer s.end()
	if n.isSlot() {
		defer n.options.subscriptions.giveBack()
		defer n.endIdle(s).Stop()
	}
	settle := func() { s.settle.Do(func() { close(s.settled) }) }
	err := subscribe(ctx, wakeUpChannel(n.inSlot(n.options.Waiter)), settle, func(message string) {
		if w, ok := parseWakeUp(message); ok {
			n.options.Woken(w)
		}
	})
	stood := s.hasSettled() // else nobody has relied on it
	w := &n.wakeUps
	w.mu.Lock()
	wanted := w.attempt == s
	if wanted {
		w.attempt, w.ended = nil, time.Now()
	}
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && (!n.isSlot() || refusal.Unable()) {
		w.deaf = connection
	}
	w.mu.Unlock()
	settle()
	if stood && wanted && n.life.Err() == nil {
		n.options.Changed("")
	}
}

// endIdle ends the subscription when nobody has used it for long. Nobody waits by it then.
func (n *Node) endIdle(s *subscription) *time.Timer {
	var timer *time.Timer
	w := &n.wakeUps
	w.mu.Lock()
	defer w.mu.Unlock()
	timer = time.AfterFunc(subscriptionIdle, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.attempt != s {
			return
		}
		if left := subscriptionIdle - time.Since(s.used); left > 0 {
			timer.Reset(left)
			return
		}
		w.attempt = nil
		s.end()
	})
	return timer
}

// subscriptions counts those that a client has in a Cluster's slots.
type subscriptions struct{ n atomic.Int32 }

// take counts one more, and reports false where there are enough.
func (s *subscriptions) take() bool {
	if s.n.Add(1) > maxSubscriptions {
		s.n.Add(-1)
		return false
	}
	return true
}

func (s *subscriptions) giveBack() { s.n.Add(-1) }

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
