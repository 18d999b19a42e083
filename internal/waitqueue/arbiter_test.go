package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// travel is how long a message to a node takes, and its answer. All processes
// of a test wait timeout for one step.
const (
	travel  = time.Millisecond
	timeout = 50 * time.Millisecond
)

// node is a node of a bubble that keeps the queue for one key. Its steps are
// those of the scripts.
type node struct {
	name string

	mu sync.Mutex // guards what follows
	// down: it cannot be reached. slow is what its answers take in addition.
	down bool
	slow time.Duration
	// mute: its wake-ups are lost. deaf: it can wake up nobody.
	mute, deaf bool

	holder     string
	expires    time.Time // zero for never
	queue      map[string]uint64
	heartbeats map[string]time.Time
	ticket     uint64
	woken      string
	until      time.Time
	// from has left its other keys to whoever is woken up.
	from string
	// forgone is what processes had no use for; the arbiter keeps the list.
	forgone []string
	// hear are the processes that it can wake up, and watching those that hear of
	// the key's end.
	hear     map[string]*Queue
	watching []*Queue

	// enqueued and looked count what it was asked.
	enqueued, looked int
}

func newNode(i int) *node {
	return &node{name: fmt.Sprint("n", i), queue: make(map[string]uint64), heartbeats: make(map[string]time.Time), hear: make(map[string]*Queue)}
}

// endpoint is a process's way to a node.
type endpoint struct {
	*node
	index int
	queue *Queue
}

var errDown = errors.New("down")

func (e endpoint) Name() string { return e.name }

// answer carries a step to the node and back.
func (e endpoint) answer(ctx context.Context, step func()) (vote.Verdict, error) {
	e.mu.Lock()
	down, slow := e.down, e.slow
	e.mu.Unlock()
	if down {
		return vote.NotSent, errDown
	}
	done := make(chan struct{})
	time.AfterFunc(travel, func() {
		e.mu.Lock()
		step()
		e.mu.Unlock()
		time.AfterFunc(travel+slow, func() { close(done) })
	})
	select {
	case <-done:
		return vote.Held, nil
	case <-ctx.Done():
		return vote.Unknown, ctx.Err()
	}
}

func (e endpoint) Enqueue(ctx context.Context, r vote.Enqueue) (s vote.Position) {
	var found vote.Position
	e.mu.Lock()
	hears := !e.deaf
	e.mu.Unlock()
	waiter := strings.TrimPrefix(r.Ticket.Waiter, "-")
	if !hears {
		waiter = "-" + waiter
	}
	verdict, err := e.answer(ctx, func() {
		e.enqueued++
		if hears {
			e.hear[process(waiter)] = e.queue
		}
		if r.Watch {
			e.watching = append(e.watching, e.queue)
		}
		found = e.enqueue(waiter, r.Ticket.Number)
	})
	if verdict == vote.Held {
		s = found
		s.Watched = r.Watch
	}
	s.Verdict, s.Err, s.Hears, s.Ticket.Waiter = verdict, err, hears, waiter
	return s
}

func (e endpoint) Leave(ctx context.Context, _, waiter string) {
	e.answer(ctx, func() { e.leave(waiter) })
}

func (e endpoint) HasWaiters(ctx context.Context, _ string) (somebody bool, err error) {
	_, err = e.answer(ctx, func() { e.looked++; somebody = len(e.node.queue) > 0 })
	return somebody, err
}

func process(waiter string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(waiter, "-"), "/")
	return name
}

// present expires the key. The caller holds k.mu, as for what follows.
func (k *node) present() string {
	if !k.expires.IsZero() && !time.Now().Before(k.expires) {
		k.holder, k.expires = "", time.Time{}
	}
	return k.holder
}

func (k *node) enqueue(waiter string, ticket uint64) (s vote.Position) {
	now := time.Now()
	for other, lapses := range k.heartbeats {
		if lapses.Before(now) {
			k.remove(other)
		}
	}
	if ticket == 0 {
		if ticket = k.queue[waiter]; ticket == 0 {
			k.ticket++
			ticket = k.ticket
		}
	}
	k.ticket = max(k.ticket, ticket)
	k.queue[waiter], k.heartbeats[waiter] = ticket, now.Add(script.Patience)
	s.Ticket.Number = ticket
	if s.Holder = k.present(); s.Holder != "" {
		s.Ahead = slices.Index(k.order(), waiter)
		s.Left = -1
		if !k.expires.IsZero() {
			s.Left = time.Until(k.expires)
		}
		return s
	}
	k.wakeFirst(waiter)
	if s.Ahead = slices.Index(k.order(), waiter); k.woken != waiter {
		s.Ahead = max(s.Ahead, 1)
	}
	s.Left, s.From = time.Until(k.until), k.from
	return s
}

func (k *node) order() []string {
	var all []string
	for w := range k.queue {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b string) int { return int(k.queue[a]) - int(k.queue[b]) })
	return all
}

func (k *node) remove(waiter string) {
	delete(k.queue, waiter)
	delete(k.heartbeats, waiter)
}

func (k *node) leave(waiter string) {
	k.remove(waiter)
	if k.present() == "" {
		k.wakeFirst("")
	}
}

func (k *node) wakeFirst(self string) {
	if _, there := k.queue[k.woken]; there && !k.until.Before(time.Now()) {
		if self == "" {
			k.send(k.woken)
		}
		return
	}
	k.woken = ""
	if order := k.order(); len(order) > 0 {
		k.woken, k.until = order[0], time.Now().Add(script.Grace)
		k.heartbeats[k.woken] = k.until
		if k.woken != self {
			k.send(k.woken)
		}
	}
}

func (k *node) send(waiter string) {
	to := k.hear[process(waiter)]
	if k.mute || to == nil || strings.HasPrefix(waiter, "-") {
		return
	}
	index := to.indexOf(k.name)
	message := vote.WakeUp{Waiter: waiter, Key: key, From: k.from}
	time.AfterFunc(travel, func() { to.Wake(index, message) })
}

// release ends the key, and wakes up the first in the queue unless the holder was of
// another library.
func (k *node) release(foreign bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holder, k.expires = "", time.Time{}
	watching := k.watching
	k.watching = nil
	for _, q := range watching {
		time.AfterFunc(travel, func() { q.Changed(key) })
	}
	if !foreign {
		k.wakeFirst("")
	}
}

// take makes holder the key, for an attempt of waiter; another who was woken up
// comes first.
func (k *node) take(holder, waiter string, ttl time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.present() != "" || k.woken != "" && k.woken != waiter && !k.until.Before(time.Now()) {
		return false
	}
	k.holder, k.expires = holder, time.Time{}
	if ttl > 0 {
		k.expires = time.Now().Add(ttl)
	}
	k.remove(waiter)
	k.woken, k.from = "", ""
	return true
}

func (k *node) set(change func(k *node)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *node) asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.enqueued
}

func (q *Queue) indexOf(name string) int {
	return slices.IndexFunc(q.nodes, func(k Node) bool { return k.Name() == name })
}

const key = "x"

var request = vote.Acquire{Key: key}

// foreign holders of these tests have names that begin so.
func isForeign(holder string) bool { return strings.HasPrefix(holder, "theirs") }

// removals are transfers of which only what nobody has a use for is seen.
type removals func(key, id string)

func (r removals) Remove(key, id string) { r(key, id) }

func (r removals) Transfer(*quorum.Lease, vote.Acquire, func(*quorum.Lease)) ([]vote.Answer, bool) {
	panic("nothing is held here")
}

// newQueue returns a process's queue over the nodes.
func newQueue(t *testing.T, name string, nodes []*node, draw func(time.Duration) time.Duration) *Queue {
	t.Helper()
	if draw == nil {
		draw = func(d time.Duration) time.Duration { return d / 2 }
	}
	q := New(Options{Waiter: name, Timeout: timeout, Foreign: isForeign, Draw: draw})
	q.UseTransfers(removals(func(key, id string) {
		nodes[q.Arbiter(key)].set(func(k *node) { k.forgone = append(k.forgone, key+" of "+id) })
	}))
	var all []Node
	for i, k := range nodes {
		all = append(all, endpoint{k, i, q})
	}
	q.Use(all)
	t.Cleanup(q.Close)
	return q
}

func newNodes(n int) []*node {
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = newNode(i)
	}
	return nodes
}

// heldNode returns one node, on which the key is held.
func heldNode() (nodes []*node, k *node) {
	nodes = newNodes(1)
	nodes[0].set(func(k *node) { k.holder = "ours" })
	return nodes, nodes[0]
}

// arbiter returns the node that is asked first.
func arbiter(t *testing.T, nodes []*node) *node {
	t.Helper()
	return nodes[newQueue(t, "scout", nodes, nil).Order(key)[0]]
}

func quiet(vote.Position) {}

// awaiting starts an Await, and returns where its outcome will be.
func awaiting(ctx context.Context, p *Ticket, rest time.Duration) <-chan error {
	out := make(chan error, 1)
	go func() { out <- p.Await(ctx, rest, quiet) }()
	return out
}

// settle lets what is under way end.
func settle() { time.Sleep(10 * travel); synctest.Wait() }

func pending(t *testing.T, out <-chan error) {
	t.Helper()
	select {
	case err := <-out:
		t.Fatalf("its turn has come: %v", err)
	default:
	}
}
