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

// In a Cluster there is a subscription for each slot that is waited in, at the slot's master.
const (
	// maxSubscriptions is how many a client has there. Waiters in further slots have to look.
	maxSubscriptions = 1024
	// subscriptionIdle is how long an unused subscription is kept. A waiter uses it with each
	// heartbeat.
	subscriptionIdle = 4 * script.Patience
	// resubscribePause is how long after the end of a subscription the next is made: earlier, it
	// might find the slot still on its way.
	resubscribePause = 100 * time.Millisecond
	// refusedPause is how long after a refusal the server is asked again by the same connection. Its
	// users' rights may have changed.
	refusedPause = 10 * time.Second
)

// wakeUps is the subscription by which the node wakes up waiters of this client.
type wakeUps struct {
	mu sync.Mutex // guards what follows; nothing is called while it is held
	// attempt is the subscription that stands or is being made; nil when there is
	// none.
	attempt *subscription
	// deaf is the connection on which the server refused to subscribe, and refused when that was.
	deaf    uint64
	refused time.Time
	// ended is when a slot's last subscription ended.
	ended time.Time
}

// subscription is one SUBSCRIBE or SSUBSCRIBE.
type subscription struct {
	// settled is closed when the subscription stands, or has failed.
	settled chan struct{}
	settle  sync.Once
	// end ends the subscription. For a slot, run is the server that had it then, and used is when
	// the subscription was last asked for; wakeUps.mu guards used.
	end  context.CancelFunc
	run  string
	used time.Time
}

// subscriber returns the method by which the connection subscribes, nil where it cannot.
func (n *Node) subscriber() func(ctx context.Context, channel string, ready func(), heard func(message string)) error {
	switch l := n.conn.(type) {
	case driver.Listener:
		return l.Subscribe
	case driver.ShardListener:
		return l.SubscribeShard
	}
	return nil
}

// inSlot returns a waiter's name with the slot's tag, which tells the scripts that its channel lies
// in the slot. Where the node is no slot it returns the name.
func (n *Node) inSlot(waiter string) string {
	if !n.isSlot() {
		return waiter
	}
	return "{" + n.options.slotTag + "}" + waiter
}

// listen makes sure that the node can send wake-ups to this client, and reports whether it can.
func (n *Node) listen(ctx context.Context) bool {
	subscribe := n.subscriber()
	if subscribe == nil || n.Connect(ctx) != nil {
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

// subscription returns the subscription that stands or is being made. If there is none it starts
// one. It returns nil if there can be none.
func (n *Node) subscription(subscribe func(context.Context, string, func(), func(string)) error) *subscription {
	connection, run := n.link.connected.Load(), ""
	if seen := n.link.seen.Load(); seen != nil && n.isSlot() {
		run = seen.run
	}
	w := &n.wakeUps
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.attempt; s != nil && s.run != run {
		s.end() // the slot has moved, and its former server may not be there to say so
		w.attempt = nil
	}
	deaf := w.deaf == connection && time.Since(w.refused) < refusedPause
	if w.attempt == nil && !deaf && (!n.isSlot() || time.Since(w.ended) > resubscribePause && n.options.subscriptions.take()) {
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

// await reports whether the subscription settles within half of the time that ctx leaves: one that
// takes a connection of its own is slow, and the step has yet to be sent.
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

// receive takes in the node's wake-ups until the connection breaks or, in a Cluster, the slot moves
// or nobody has waited for long.
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
	stood := s.hasSettled() // otherwise nobody has relied on it
	w := &n.wakeUps
	w.mu.Lock()
	wanted := w.attempt == s
	if wanted {
		w.attempt, w.ended = nil, time.Now()
	}
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && (!n.isSlot() || refusal.Unable()) {
		w.deaf, w.refused = connection, time.Now()
	}
	w.mu.Unlock()
	settle()
	if stood && wanted && n.life.Err() == nil {
		n.options.Changed("")
	}
}

// endIdle ends the subscription when nobody has used it for long. Then nobody waits by it.
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

// subscriptions counts the subscriptions that a client has in a Cluster's slots.
type subscriptions struct{ n atomic.Int32 }

// take counts one more. It reports false where there are enough.
func (s *subscriptions) take() bool {
	if s.n.Add(1) > maxSubscriptions {
		s.n.Add(-1)
		return false
	}
	return true
}

func (s *subscriptions) giveBack() { s.n.Add(-1) }

// parseWakeUp reads a message of publish.lua.
func parseWakeUp(message string) (w vote.WakeUp, ok bool) {
	waiter, rest, _ := strings.Cut(message, " ")
	length, rest, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return w, false
	}
	return vote.WakeUp{Waiter: waiter, From: rest[:n], Key: rest[n:]}, true
}
