package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// Transfers ends leases of an engine in favour of the waiter that is woken up, or of the next
// caller in the process. It is safe for concurrent use.
type Transfers struct {
	engine *Engine
	// ttl is how long a node keeps any key at most.
	ttl time.Duration

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// of has what holders have left lately: the last transfer of each key.
	of     map[string]*transfer
	closed bool
	// removing counts the transfers whose removal is being started.
	removing sync.WaitGroup
}

// transfer is the keys that a holder left on nodes.
type transfer struct {
	request vote.Release
	nodes   []int
}

const (
	// transferTime is how long the waiter that was woken up has to take over a transfer. What is
	// left of it then is removed.
	transferTime = 500 * time.Millisecond
	// maxTransfers bounds how many transfers are remembered.
	maxTransfers = 1024
)

// NewTransfers makes e's leases end by transfers. It must be called before the first of them is
// acquired. ttl is the longest TTL of any client.
func NewTransfers(e *Engine, ttl time.Duration) *Transfers {
	t := &Transfers{engine: e, ttl: ttl, of: make(map[string]*transfer)}
	e.transfers = t
	return t
}

// step returns the acquire step of an attempt to which a holder may have left its keys. Where the
// attempt cannot have taken over a key, the step has that key removed.
func (t *Transfers) step() stepFunc {
	return func(k *keys, ctx context.Context, i int) vote.Answer {
		a := k.acquireStep(ctx, i)
		// Where another key is in the way, that of the former holder may still be there.
		another := a.Verdict == vote.Held && a.Which == 0
		if a.Verdict != vote.Granted && !another && i != k.request.Ticket.Node {
			before := vote.Release{Key: k.request.Key, ID: k.request.From, TTL: t.ttl}
			t.remove(before, []int{i})
		}
		return a
	}
}

// Transfer ends the lease l, as its Release does, and makes an attempt for request that may replace
// its keys: that is one step on each node in place of two, and nobody comes between. A node that
// has neither a key of the lease nor another's grants the attempt as it would any other.
//
// decided is called once the attempt is decided. That may be before the last answers about the old
// keys, which the attempt's validity does not wait for. next is nil when the attempt failed: then
// what it may have left, and the lease's own keys, are released. The answers are those of Release.
// ok is false when the lease was over before: then nothing was attempted, and next is nil too.
func (*Transfers) Transfer(l *Lease, request vote.Acquire, decided func(next *Lease)) (answers []vote.Answer, ok bool) {
	free := make([]chan struct{}, len(l.nodes))
	for i := range free {
		free[i] = make(chan struct{})
	}
	idle, ok := l.end(transferred, func(i int) { close(free[i]) })
	if !ok {
		decided(nil)
		return nil, false
	}
	for _, i := range idle {
		close(free[i])
	}
	start := l.engine.clock.Now()
	request.From, request.Barge = l.ID(), true
	// The time that the lease's steps take counts as the attempt's.
	next, _ := newKeys(l.engine, request, start).acquire(context.Background(), start, func(attempt *keys, ctx context.Context, i int) vote.Answer {
		if !l.nodes[i].toRelease {
			return attempt.acquireStep(ctx, i)
		}
		<-free[i] // the lease's step comes first
		a := attempt.acquireStep(ctx, i)
		l.releaseAnswered(i, l.releaseUnlessTaken(i, request.ID, a))
		return a
	})
	decided(next)
	return l.collectTransferred(false), true
}

// releaseUnlessTaken releases the key on node i, unless it was transferred to the attempt with
// holder id id, whose answer is a.
func (k *keys) releaseUnlessTaken(i int, id string, a vote.Answer) vote.Answer {
	switch {
	case a.Verdict == vote.Granted && a.Transferred:
		return vote.Answer{Verdict: vote.Granted}
	case a.Verdict == vote.Granted:
		return vote.Answer{Verdict: vote.NotOurs}
	}
	released := k.sendRelease(i)
	switch {
	case released.Verdict == vote.Held && released.Holder == id:
		released.Verdict = vote.Granted // the answer was lost, but the step was done
	// rule: not-lost-in-doubt
	case (released.Verdict == vote.NotOurs || released.Verdict == vote.Held) && a.Verdict == vote.Unknown:
		// The step may have been done and undone since, and another holder may have come: nobody
		// can say that the lock was lost.
		released = vote.Answer{Verdict: vote.Unknown, Err: a.Err}
	}
	return released
}

// leave leaves the keys of request on nodes to the waiter that was woken up. An earlier transfer of
// the same key has been taken over by now, as the lock was held again; but perhaps not on nodes for
// which has returns false, where the lock that is left now has no key. There it is removed.
func (t *Transfers) leave(request vote.Release, nodes []int, has func(i int) bool) {
	left := &transfer{request: request, nodes: nodes}
	t.mu.Lock()
	before := t.of[request.Key]
	kept := !t.closed && (len(t.of) < maxTransfers || before != nil)
	if kept {
		t.of[request.Key] = left
	}
	t.mu.Unlock()
	if !kept {
		t.remove(request, nodes)
		return
	}
	t.engine.clock.AfterFunc(transferTime, func() { t.clear(left) })
	if before == nil {
		return
	}
	if there := slices.DeleteFunc(before.nodes, has); len(there) > 0 {
		t.remove(before.request, there)
	}
}

// clear removes what is left of a transfer whose time is over, unless a later transfer has followed
// it.
func (t *Transfers) clear(left *transfer) {
	t.mu.Lock()
	last := t.of[left.request.Key] == left
	if last {
		delete(t.of, left.request.Key)
		t.removing.Add(1)
	}
	t.mu.Unlock()
	if last {
		t.remove(left.request, left.nodes)
		t.removing.Done()
	}
}

// close removes what is left of all transfers: nobody else would when the process ends.
func (t *Transfers) close() {
	t.mu.Lock()
	left := t.of
	t.of, t.closed = nil, true
	t.mu.Unlock()
	for _, one := range left {
		t.remove(one.request, one.nodes)
	}
	t.removing.Wait()
}

// Remove removes the keys that the holder id has left on the nodes; that holder holds nothing any
// more. It does not wait.
func (t *Transfers) Remove(key, id string) {
	nodes := make([]int, len(t.engine.voters))
	for i := range nodes {
		nodes[i] = i
	}
	t.remove(vote.Release{Key: key, ID: id, TTL: t.ttl}, nodes)
}

func (t *Transfers) remove(request vote.Release, nodes []int) {
	k := newKeys(t.engine, vote.Acquire{Key: request.Key, ID: request.ID, TTL: request.TTL}, t.engine.clock.Now())
	for _, i := range nodes {
		k.nodes[i].key = ours
	}
	k.giveUp()
}
