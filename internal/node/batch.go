package node

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Batched is a Node that sends the steps of several callers in one command when many call at once.
// Receiving a command and starting a script costs the server, and the client, more than a simple
// step does. Such a command does simple steps only. It leaves other steps undone, and they are sent
// one by one.
//
// Batching only saves work: a Node without it gives the same answers.
type Batched struct {
	*Node
	// above is the number of callers above which their steps are batched.
	above   int
	batcher *batcher
	limit   atomic.Pointer[limit]
}

// Batch returns n with its steps batched when there are more callers than above: 0 stands for two
// for each processor, and -1 batches all steps.
func Batch(n *Node, above int) *Batched {
	if above == 0 {
		above = defaultBatchAbove
	}
	if _, ok := n.conn.(driver.Drainer); ok {
		// Such a connection keeps steps with the same first key in order, as a Cluster does. Steps
		// in a batch have another first key than the step that undoes one of them.
		above = math.MaxInt
	}
	b := &Batched{Node: n, above: above}
	b.batcher = newBatcher(b.sendBatch, []string{n.admissionKey}, []string{script.Batch, n.counterTTL, ""})
	return b
}

// Acquire is Node.Acquire. A step that goes in a batch ignores ctx.
func (b *Batched) Acquire(ctx context.Context, r vote.Acquire) vote.Answer {
	defer b.batcher.exit()
	if b.batcher.enter(b.above) && b.isSimple(&r) {
		if a, ok := b.acquireInBatch(&r); ok {
			return a
		}
	}
	return b.Node.Acquire(ctx, r)
}

// Release is Node.Release. A step that goes in a batch ignores ctx.
func (b *Batched) Release(ctx context.Context, r vote.Release) vote.Answer {
	defer b.batcher.exit()
	if b.batcher.enter(b.above) && isSimpleRelease(&r) {
		if reply, ok, err := b.releaseInBatch(&r); ok {
			return b.released(r, reply, err)
		}
	}
	return b.Node.Release(ctx, r)
}

// defaultBatchAbove is the number of callers above which steps are batched. Measured on two
// processors.
var defaultBatchAbove = 2 * runtime.GOMAXPROCS(0)

const (
	// maxBatch is how many steps go in one command. What is behind the command at the server waits
	// for no more than these.
	maxBatch = 32
	// While maxBatches commands are under way, the next is held back so that others can join it,
	// but for heldBack at most: a node may be far away.
	maxBatches = 2
	heldBack   = 200 * time.Microsecond
)

// batcher batches steps.
type batcher struct {
	// send runs the steps' common command, and keeps neither keys nor args.
	send func(keys, args []string) (answers string, err error)
	// keys and args begin the command; the number of acquire steps follows args.
	keys, args []string
	callers    atomic.Int32
	// spare has rooms that no command uses.
	spare sync.Pool // of *room
	// underWay has an element for each command under way; while it is full, the next is held back.
	underWay chan struct{}

	mu   sync.Mutex // guards open and what is in it; nothing is called while it is held
	open *batch     // the batch that steps may still be added to; nil when there is none
}

// batch is steps that go in one command.
type batch struct {
	room *room         // nil once it was sent
	full chan struct{} // closed when there is no room for another step
	// done is closed when there is an outcome. answers has a 1 for each step that was executed,
	// acquire steps first; err is why there are no answers.
	done     chan struct{}
	acquires int
	answers  string
	err      error
}

// kind is what a step does.
type kind int

const (
	acquiring kind = iota
	releasing
)

// room is where a command is put together: its steps by their kind.
type room [2]struct {
	steps      int
	keys, args []string
}

func newBatcher(send func(keys, args []string) (string, error), keys, args []string) *batcher {
	return &batcher{send: send, keys: keys, args: args, underWay: make(chan struct{}, maxBatches)}
}

// enter counts a caller in, and reports whether there are more callers than above. Each enter is
// followed by an exit.
func (br *batcher) enter(above int) bool { return int(br.callers.Add(1)) > above }

func (br *batcher) exit() { br.callers.Add(-1) }

// join has a step sent together with others, by the caller whose step came first, and waits until
// it was answered or given up. A caller that left earlier could not know whether what it sends next
// comes after the step. join reports whether the step was executed. A refusal by the server tells
// nothing about a single acquire step; it does tell that no release step was executed.
func (br *batcher) join(k kind, keys, args []string) (executed bool, err error) {
	br.mu.Lock()
	b := br.open
	first := b == nil
	if first {
		b = &batch{room: br.vacant(), full: make(chan struct{}), done: make(chan struct{})}
		br.open = b
	}
	r := &b.room[k]
	i := r.steps
	r.steps++
	r.keys, r.args = append(r.keys, keys...), append(r.args, args...)
	if b.room[acquiring].steps+b.room[releasing].steps == maxBatch {
		br.open = nil
		close(b.full)
	}
	br.mu.Unlock()
	if first {
		br.run(b)
	}
	<-b.done
	if isReply(b.err) {
		return false, nil
	}
	if k == releasing {
		i += b.acquires
	}
	return i < len(b.answers) && b.answers[i] == '1', b.err
}

// run sends b after others had time to join it.
func (br *batcher) run(b *batch) {
	runtime.Gosched() // first lets those run that are about to join
	counted := br.holdBack(b)
	br.mu.Lock()
	if br.open == b {
		br.open = nil
	}
	br.mu.Unlock()

	acquires, releases := &b.room[acquiring], &b.room[releasing]
	b.acquires = acquires.steps
	acquires.args[len(br.args)] = strconv.Itoa(acquires.steps)
	acquires.keys, acquires.args = append(acquires.keys, releases.keys...), append(acquires.args, releases.args...)
	b.answers, b.err = br.send(acquires.keys, acquires.args)
	if counted {
		<-br.underWay
	}
	br.vacate(b)
	close(b.done)
}

// holdBack returns when b may be sent. It reports whether b counts among the commands under way.
func (br *batcher) holdBack(b *batch) bool {
	select {
	case br.underWay <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(heldBack)
	defer timer.Stop()
	select {
	case br.underWay <- struct{}{}:
		return true
	case <-timer.C:
	case <-b.full:
	}
	return false
}

// vacant returns room for a command, filled with what the command begins with.
func (br *batcher) vacant() *room {
	r, _ := br.spare.Get().(*room)
	if r == nil {
		r = new(room)
	}
	a := &r[acquiring]
	a.keys, a.args = append(a.keys, br.keys...), append(append(a.args, br.args...), "")
	return r
}

// vacate makes b's room available to another command.
func (br *batcher) vacate(b *batch) {
	r := b.room
	b.room = nil
	for k := range r {
		clear(r[k].keys)
		clear(r[k].args)
		r[k].steps, r[k].keys, r[k].args = 0, r[k].keys[:0], r[k].args[:0]
	}
	br.spare.Put(r)
}

// limit is a context shared by commands that begin at about the same time: a timer and a channel of
// its own would cost each command more than the batching.
type limit struct {
	context.Context
	full time.Time // from then on it is too old for other commands
}

// limited returns a context that ends after Patience, or up to an eighth of it earlier, or with the
// node.
func (b *Batched) limited() context.Context {
	now := time.Now()
	if l := b.limit.Load(); l != nil && now.Before(l.full) {
		return l
	}
	ctx, cancel := context.WithCancel(b.life)
	time.AfterFunc(b.options.Patience, cancel)
	l := &limit{ctx, now.Add(b.options.Patience / 8)}
	b.limit.Store(l)
	return l
}

// acquireInBatch is Acquire by a batch. ok is false when the node must be asked by a step of its
// own. After an error reply the node may have executed the step: asked again it says so, and its
// first answer is not used.
func (b *Batched) acquireInBatch(r *vote.Acquire) (a vote.Answer, ok bool) {
	executed, err := b.batcher.join(acquiring, []string{r.Key, CounterKey(r.Key), NextKey(r.Key)},
		[]string{r.ID, milliseconds(r.TTL), strconv.FormatUint(r.Proposed, 10)})
	switch {
	case err != nil:
		return failure(err), true
	case executed:
		b.noteVote()
		return vote.Answer{Verdict: vote.Granted, Counter: r.Proposed}, true
	}
	return a, false
}

// isSimple reports whether the acquire step of r may go in a batch.
func (b *Batched) isSimple(r *vote.Acquire) bool {
	return r.From == "" && r.More == 0 && !r.Reused && !r.Barge && r.With == nil && !r.Shared && r.Ticket.Waiter == "" && b.replicas == nil
}

// releaseInBatch is release by a batch. ok is false when the node must be asked by a step of its
// own, also where the node is asked for no votes now.
func (b *Batched) releaseInBatch(r *vote.Release) (reply driver.Reply, ok bool, err error) {
	executed, err := b.batcher.join(releasing, []string{r.Key, NextKey(r.Key)}, []string{r.ID})
	if errors.Is(err, driver.ErrNotSent) {
		return reply, false, nil
	}
	return driver.Reply{Kind: driver.Int, Int: 1}, executed || err != nil, err
}

// isSimpleRelease reports whether the release step of r may go in a batch.
func isSimpleRelease(r *vote.Release) bool {
	_, _, _, slot := CutSlot(r.Key)
	return r.Token == 0 && r.With == nil && !r.Shared && r.Ticket.Waiter == "" && !r.Waiting && !slot
}

// sendBatch runs the command of a batch.
func (b *Batched) sendBatch(keys, args []string) (answers string, err error) {
	ctx := b.limited()
	inFlight := b.votes.Load()
	seen, err := b.ready(ctx, inFlight, b.options.Patience)
	if err != nil {
		return "", err
	}
	args[2] = seen.expected
	reply, err := b.conn.EvalSHA(ctx, b.voting.SHA, keys, args)
	reply, err = b.answered(ctx, inFlight, seen, reply, err)
	return reply.Text, err
}
