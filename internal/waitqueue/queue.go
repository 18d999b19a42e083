// Package waitqueue makes callers wait for keys in the order in which they came. Inside a process
// they wait for each other (local), and one of them contends for all with other processes. The wait
// queue between processes lives on one node, the arbiter, and has one ticket for each process.
// Fairness needs that one node, safety does not: a waiter whose turn it is only makes an attempt
// like any other.
//
// Whoever releases the lock has the arbiter wake up the first in the queue. Behind every message
// there is a timer, so that a lost message only costs time.
package waitqueue

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Node is a node that can keep a wait queue. Its methods wait for the node's answer
// or for ctx.
type Node interface {
	Name() string
	Enqueue(ctx context.Context, r vote.Enqueue) vote.Position
	Leave(ctx context.Context, key, waiter string)
	HasWaiters(ctx context.Context, key string) (somebody bool, err error)
}

// Options says how a Queue waits.
type Options struct {
	// Waiter is the name by which the nodes know this process.
	Waiter string
	// Timeout is how long a node is waited for in one step.
	Timeout time.Duration
	// Foreign reports whether a holder is one that does not wake up the first in the queue when it
	// releases.
	Foreign func(holder string) bool
	// Draw returns a random duration below d, which is positive.
	Draw func(d time.Duration) time.Duration
	// Succeed, if set, returns the lease by which a caller of this process goes on to hold the keys
	// of another, or nil where an attempt of its own is better. It does not block.
	Succeed func(next Caller, before *quorum.Lease) *quorum.Lease
	// Life ends when the client is being closed. After that nothing is transferred.
	Life context.Context
}

// Queue is one process's part in the wait queues for all locks. It is safe for
// concurrent use.
type Queue struct {
	options   Options
	nodes     []Node
	transfers Transfers

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// tickets has this process's tickets, by key and by waiter, and joined counts those that it has had.
	tickets map[string]map[string]*Ticket
	joined  uint64
	// locals has each key that somebody in this process holds, contends or waits for.
	locals map[string]*local
	// contended has the keys that others were seen waiting for, and until when that is believed: a
	// caller that releases such a key joins its queue, and does not barge in.
	contended map[string]time.Time
	closed    bool
	// background has what Close waits for.
	background sync.WaitGroup
}

// New returns a Queue with no nodes.
func New(o Options) *Queue {
	return &Queue{options: o, tickets: make(map[string]map[string]*Ticket), locals: make(map[string]*local), contended: make(map[string]time.Time)}
}

// Use sets the nodes that may keep a queue. It must be called before the first ticket is taken.
func (q *Queue) Use(nodes []Node) { q.nodes = nodes }

// Transfers replace the keys of one holder by those of the next.
type Transfers interface {
	// Transfer ends a lease in favour of an attempt for request, whose lease is passed to decided.
	// The answers are those of Lease.Release.
	Transfer(l *quorum.Lease, request vote.Acquire, decided func(next *quorum.Lease)) (answers []vote.Answer, ok bool)
	// Remove removes the keys that a holder left on nodes for a waiter of this process
	// that has no use for them. It does not block.
	Remove(key, id string)
}

// UseTransfers makes holders transfer keys in place of releasing them. It must be called before
// there is a holder.
func (q *Queue) UseTransfers(t Transfers) { q.transfers = t }

// Close waits for the tickets that are being left. After Close no ticket is left any more.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.background.Wait()
}

// join takes a place in the wait queue for key. Each reader of this process has one of its own there,
// and all its other callers have one together. It sends nothing: Await does.
func (q *Queue) join(key string, reader bool) *Ticket {
	waiter := q.options.Waiter
	if reader {
		waiter = vote.Reader + waiter
	}
	t := &Ticket{queue: q, key: key, order: q.Order(key), woken: make(chan notice, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.joined++
	// No two tickets have one name: a message for a ticket that was left may arrive after the next
	// ticket was taken.
	t.waiter = waiter + "/" + strconv.FormatUint(q.joined, 36)
	t.atArbiter.Waiter = t.waiter
	if q.tickets[key] == nil {
		q.tickets[key] = make(map[string]*Ticket)
	}
	q.tickets[key][t.waiter] = t
	return t
}

// Arbiter returns the index of the node that keeps the key's queue while it can.
func (q *Queue) Arbiter(key string) int { return q.Order(key)[0] }

// Order returns the nodes that may keep the key's queue, the arbiter first. The order is the same
// in every process that gives the nodes the same names, and differs from key to key (rendezvous
// hashing: Thaler and Ravishankar, 1998).
func (q *Queue) Order(key string) []int {
	weights := make([]uint64, len(q.nodes))
	order := make([]int, len(q.nodes))
	for i, n := range q.nodes {
		h := fnv.New64a()
		h.Write([]byte(key + "\x00" + n.Name()))
		order[i], weights[i] = i, mix(h.Sum64())
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	return order
}

// mix spreads the effect of the last bytes of FNV's input over all bits. Without it one node would
// come first for half of the keys (MurmurHash3's finalizer).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Wake takes in that the i-th node has woken up a waiter of this process. It does not block.
func (q *Queue) Wake(i int, w vote.WakeUp) {
	q.mu.Lock()
	t := q.tickets[w.Key][vote.Waiter(w.Waiter)]
	if t != nil {
		t.signal(notice{turn: true, from: w.From})
	}
	q.mu.Unlock()
	if t == nil {
		// That waiter does not wait any more, and the others should not wait for it.
		q.leave(i, w, nil)
	}
}

// Changed takes in that key may have changed or, if key is "", that any key may that this process
// waits for. It does not block.
func (q *Queue) Changed(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed := q.tickets
	if key != "" {
		changed = map[string]map[string]*Ticket{key: q.tickets[key]}
	}
	for _, tickets := range changed {
		for _, t := range tickets {
			t.signal(notice{})
		}
	}
}

// leave gives up the place of w in the queue of the i-th node, and the keys that were left to it,
// in the background. The releases that undoing counts, if any, come first: they may take the place anew.
func (q *Queue) leave(i int, w vote.WakeUp, undoing *sync.WaitGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return // the place lapses
	}
	q.background.Go(func() {
		if undoing != nil {
			undoing.Wait()
		}
		ctx, cancel := context.WithTimeout(context.Background(), q.options.Timeout)
		defer cancel()
		q.nodes[i].Leave(ctx, w.Key, w.Waiter)
		if w.From != "" && q.transfers != nil {
			q.transfers.Remove(w.Key, w.From)
		}
	})
}
