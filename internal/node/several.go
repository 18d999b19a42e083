package node

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/ballot"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// Where so many callers want something of a node at once that processors are
// scarce, the steps of several go in one command: to take in a command and to start
// a script costs a server more than what a simple step does, and the client, too.
// Such a command does what is simple. The rest it leaves undone, to be asked for
// one by one.

// defaultCrowd is beyond how many callers steps are put together. Measured on two
// processors.
var defaultCrowd = 2 * runtime.GOMAXPROCS(0)

// maxBundle is how many steps go in one command: what is behind it at the server
// waits for no more.
const maxBundle = 32

// gatherer puts steps of one kind together.
type gatherer struct {
	// send runs the steps' common command, and keeps neither keys nor args.
	send func(keys, args []string) (answers string, err error)
	// keys and args are what the command has before those of the steps.
	keys, args []string
	callers    atomic.Int32
	// spare has rooms that no command is in.
	spare sync.Pool // of *room

	mu   sync.Mutex // guards open and what is in it; nothing is called while it is held
	open *bundle    // that steps may still be added to; nil when there is none
}

// bundle is steps that go in one command.
type bundle struct {
	steps int
	room  *room // until it was sent
	// done is closed when there is an outcome: answers has a 1 for each step that was
	// executed, and err is why there are none.
	done    chan struct{}
	answers string
	err     error
}

// room is where the keys and arguments of a command are put together.
type room struct{ keys, args []string }

// enter counts a caller in, and reports whether it is one of a crowd. It is followed
// by exit.
func (g *gatherer) enter(crowd int) bool { return int(g.callers.Add(1)) > crowd }

func (g *gatherer) exit() { g.callers.Add(-1) }

// join has a step sent together with others, by the first of them, and waits until it
// was answered or is given up: a caller who went before that could not know that what
// it sends next comes after it. It reports whether the step was executed. An error that
// is the server's refusal says nothing of the single step.
func (g *gatherer) join(keys, args []string) (executed bool, err error) {
	g.mu.Lock()
	b := g.open
	first := b == nil
	if first {
		b = &bundle{room: g.vacant(), done: make(chan struct{})}
		g.open = b
	}
	i := b.steps
	b.steps++
	b.room.keys, b.room.args = append(b.room.keys, keys...), append(b.room.args, args...)
	if b.steps == maxBundle {
		g.open = nil
	}
	g.mu.Unlock()
	if first {
		runtime.Gosched() // others who are about to join do so first
		g.mu.Lock()
		if g.open == b {
			g.open = nil
		}
		g.mu.Unlock()
		b.answers, b.err = g.send(b.room.keys, b.room.args)
		g.vacate(b)
		close(b.done)
	}
	<-b.done
	if isReply(b.err) {
		return false, nil
	}
	return i < len(b.answers) && b.answers[i] == '1', b.err
}

// vacant is room for a command, with what comes first in it.
func (g *gatherer) vacant() *room {
	r, _ := g.spare.Get().(*room)
	if r == nil {
		r = new(room)
	}
	r.keys, r.args = append(r.keys, g.keys...), append(r.args, g.args...)
	return r
}

// vacate gives b's room to another.
func (g *gatherer) vacate(b *bundle) {
	r := b.room
	b.room = nil
	clear(r.keys)
	clear(r.args)
	r.keys, r.args = r.keys[:0], r.args[:0]
	g.spare.Put(r)
}

// limit is a context that commands which begin at about the same time share: a timer
// and a channel of its own costs each of them more than to be put together.
type limit struct {
	context.Context
	full time.Time // from when on it is too old for others
}

// limited returns a context that ends after Patience, or by an eighth of it earlier,
// or with the node.
func (n *Node) limited() context.Context {
	now := time.Now()
	if l := n.limit.Load(); l != nil && now.Before(l.full) {
		return l
	}
	ctx, cancel := context.WithCancelCause(n.life)
	time.AfterFunc(n.options.Patience, func() { cancel(context.DeadlineExceeded) })
	l := &limit{ctx, now.Add(n.options.Patience / 8)}
	n.limit.Store(l)
	return l
}

// acquireInCrowd is Acquire for one of many: ok is false when the node is to be asked
// by a step of its own. After an error reply it may have executed this one; asked
// again it says so, and its first answer is not used.
func (n *Node) acquireInCrowd(c *ballot.Claim) (a ballot.Answer, ok bool) {
	ttl, proposed := decimals(uint64(c.TTL.Milliseconds()), c.Proposed)
	executed, err := n.acquires.join([]string{c.Record, c.Counter, c.Next}, []string{c.ID, ttl, proposed})
	switch {
	case err != nil:
		return failure(err), true
	case executed:
		return ballot.Answer{Verdict: ballot.Granted, Token: c.Proposed}, true
	}
	return a, false
}

// simple reports whether the acquire step of c may go together with others.
func (n *Node) simple(c *ballot.Claim) bool {
	return c.From == "" && c.More == 0 && !c.Reused && !c.PushIn && c.Place.Waiter == "" && n.replicas == nil && !n.isSlot()
}

func (n *Node) acquireSeveral(keys, args []string) (answers string, err error) {
	reply, err := n.vote(n.limited(), keys, args)
	return reply.Text, err
}

// releaseInCrowd is release for one of many, if it is simple.
func (n *Node) releaseInCrowd(c *ballot.Claim) (reply driver.Reply, ok bool, err error) {
	executed, err := n.releases.join([]string{c.Record, c.Next}, []string{c.ID})
	return driver.Reply{Kind: driver.Int, Int: 1}, executed || err != nil, err
}

func (n *Node) releaseSeveral(keys, args []string) (answers string, err error) {
	reply, err := n.undo(n.limited(), script.Releases, keys, args)
	return reply.Text, err
}
