package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// inspectPause keeps attempts from inspecting a node that is not admitted again and again.
const inspectPause = 50 * time.Millisecond

// inspection is what is known of a node's right to vote.
type inspection struct {
	mu      sync.Mutex // guards what follows; nothing is called while it is held
	current *underWay
	outcome error
	at      time.Time
	warned  bool
}

// admit inspects the node, unless an inspection is under way or has just ended, and returns nil
// when the node may vote now.
func (n *Node) admit(ctx context.Context) error {
	a := &n.admission
	a.mu.Lock()
	h := a.current
	if h == nil && a.outcome != nil && time.Since(a.at) < inspectPause {
		outcome := a.outcome
		a.mu.Unlock()
		return outcome
	}
	if h == nil {
		h = &underWay{done: make(chan struct{})}
		a.current = h
		n.background.Go(func() {
			ctx, cancel := context.WithTimeout(n.life, n.options.ConnectTimeout)
			defer cancel()
			h.err = n.inspect(ctx, nil)
			a.mu.Lock()
			a.current = nil
			a.mu.Unlock()
			close(h.done)
		})
	}
	a.mu.Unlock()
	select {
	case <-h.done:
		return h.err
	case <-ctx.Done():
		return &admission.WaitError{Reason: "it is being inspected"}
	}
}

// errChanged says that a node was not admitted and must be looked at again: another client may have
// been quicker.
var errChanged = &admission.WaitError{Reason: "its data or its record changed while it was being admitted"}

var errSentinel = errors.New("the server is a Sentinel: add ?master_set=NAME, the name by which it knows the master")

// maxLooks is how often a node is looked at while others are admitting it.
const maxLooks = 5

// inspect looks at the node and admits it if it may vote, or if an operator vouches for its present
// run; word is nil where none does. The error says why the node may not vote, or why it could not be looked at.
func (n *Node) inspect(ctx context.Context, word *word) (err error) {
	for range maxLooks {
		if err = n.inspectOnce(ctx, word); !errors.Is(err, errChanged) && !errors.Is(err, errNotVouched) {
			break
		}
	}
	n.admission.mu.Lock()
	n.admission.outcome, n.admission.at = err, time.Now()
	n.admission.mu.Unlock()
	n.noteWait(err)
	return err
}

// look asks the node what admission depends on, and changes nothing. It returns the number of the
// connection that it looked through. The error says why the node can serve no client here at all,
// or why it could not be looked at. If whole is set, a slot is looked at together with its master's
// record. If commands is set, a node that forbids scripts is looked at without them.
func (n *Node) look(ctx context.Context, whole, commands bool) (e *evidence, connection uint64, err error) {
	if n.isSlot() {
		e, err = n.lookAtSlot(ctx, whole)
		connection = n.conn.Connections()
	} else {
		e, connection, err = n.lookAtServer(ctx)
	}
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && refusal.Redirects() && !n.isSlot() {
		return nil, connection, fmt.Errorf("%w: %w: %w", admission.ErrUnfit, errTopology[false], err)
	}
	if isUnable(err) && !n.isSlot() {
		if reply, err := n.conn.Do(ctx, "INFO", "server"); err == nil && parseInfo(reply.Text).isSentinel() {
			return nil, connection, fmt.Errorf("%w: %w", admission.ErrUnfit, errSentinel)
		}
	}
	if isUnable(err) && commands {
		e, err = n.lookByCommands(ctx)
	}
	if err != nil {
		return nil, connection, err
	}
	n.reportRun(e.run())
	if err := n.options.Census.Err(); err != nil {
		return nil, connection, fmt.Errorf("%w: %w", admission.ErrUnfit, err)
	}
	if e.info.inCluster() != n.isSlot() {
		return nil, connection, fmt.Errorf("%w: %w", admission.ErrUnfit, errTopology[n.isSlot()])
	}
	if e.isReplica() {
		if seek(ctx, n.conn) || n.Reached() { // others choose the master, or the server was one, and may be again
			return nil, connection, driver.NotSent(admission.ErrReplica)
		}
		return nil, connection, fmt.Errorf("%w: %w", admission.ErrUnfit, admission.ErrReplica)
	}
	n.warn(e)
	return e, connection, nil
}

// lookAtServer is look for a server. It returns the number of the connection by which the answer came. It asks
// again where that was renewed before its number was read.
func (n *Node) lookAtServer(ctx context.Context) (e *evidence, connection uint64, err error) {
	for {
		before := n.conn.Connections()
		e, err = n.readEvidence(ctx)
		// A connection that was made for this, or has broken since, counts one.
		if connection = n.conn.Connections(); err != nil || connection <= before+1 {
			return e, connection, err
		}
	}
}

// reportRun tells the census which server process answers.
func (n *Node) reportRun(run string) {
	if n.isSlot() {
		n.options.Census.reportSlot(n.options.Index, n.options.slotTag, run)
	} else {
		n.options.Census.report(n.options.Index, run)
	}
}

// inspectConnection looks at the node behind a new connection. It does not ask yet whether the node may vote:
// the first vote finds out.
func (n *Node) inspectConnection(ctx context.Context) (connection uint64, err error) {
	// Where votes ask for an admission, they find out what a slot's master has recorded.
	a, at := n.options.Agreement, n.options.Clock.Now()
	e, connection, err := n.look(ctx, a.NoQuarantine, a.NoQuarantine)
	if err != nil {
		return connection, err
	}
	s := &sighting{connection: connection, run: e.run(), history: e.history(), expected: e.expected(a), at: at}
	switch {
	case e.unreadable != nil:
		s.refusal = fmt.Errorf("%w: %w", admission.ErrUnfit, e.unreadable)
	case e.record != nil && e.record.Agreement(a.Deployment).ID() != a.ID():
		s.refusal = fmt.Errorf("%w: %w", admission.ErrUnfit, &admission.DisagreementError{Recorded: e.record.Agreement(a.Deployment), Ours: a})
	case e.record != nil && e.record.Void == "" && a.Durable && n.sync(ctx, e.info) == admission.SyncOtherwise:
		s.expected = "" // the first vote has it recorded
	}
	n.link.seen.Store(s)
	return connection, nil
}

// Vouch admits the node's present run on an operator's word. The error says why the node cannot be
// admitted, or why it could not be asked.
func (n *Node) Vouch(ctx context.Context) error {
	if err := n.Connect(ctx); err != nil {
		return err
	}
	return n.inspect(ctx, new(word))
}

// inspectOnce looks at the node, decides on the evidence, and carries the decision out.
func (n *Node) inspectOnce(ctx context.Context, word *word) error {
	seen, connection, err := n.look(ctx, true, false)
	if err != nil {
		if errors.Is(err, admission.ErrUnfit) || errors.Is(err, admission.ErrReplica) {
			n.link.distrust() // no vote counts, not even one that the server would give
		}
		return err
	}
	refuse := func(why error) error {
		err := fmt.Errorf("%w: %w", admission.ErrUnfit, why)
		n.link.seen.Store(&sighting{connection: connection, run: seen.run(), history: seen.history(), refusal: err})
		return err
	}
	if seen.unreadable != nil {
		return refuse(seen.unreadable)
	}
	a := n.options.Agreement
	n.link.seen.Store(&sighting{connection: connection, run: seen.run(), history: seen.history(), expected: seen.expected(a)})
	e, err := n.complete(ctx, a, seen)
	if err != nil {
		return err
	}
	e.Vouched = word != nil && word.covers(seen)
	d := admission.Decide(a, e)
	if word != nil && !e.Vouched && (d.Outcome == admission.Wait || d.Outcome == admission.Begin) {
		return errNotVouched
	}
	// rule: agreement
	if seen.shard != nil && d.Outcome != admission.Refuse && !d.Unread {
		if err := n.register(ctx, a, seen, &e); err != nil {
			return err
		}
		if e.Vouched {
			word.recorded = true
		}
		if d.Outcome != admission.Admit && e.Shard.Stale {
			// Else it would count where the slot goes from here, without what was in it.
			if err := n.mark(ctx, seen); err != nil {
				return err
			}
		}
	}
	switch d.Outcome {
	case admission.Admit:
		return n.open(ctx, a, seen, d.Void)
	case admission.Begin:
		if seen.shard == nil {
			if err := n.quarantine(ctx, e.Quarantine(a), seen); err != nil {
				return err
			}
		}
		return d.Err
	case admission.Wait:
		return d.Err
	default:
		return refuse(d.Err)
	}
}

// seek makes a connection to a replica look for the master, and reports whether others choose that.
func seek(ctx context.Context, conn driver.Conn) bool {
	seeker, ok := conn.(driver.Seeker)
	return ok && seeker.Seek(ctx)
}

// open admits the server that was looked at. That also loads the voting script, and then the one by which
// clients of any version see that. A server that was blank is marked first, and looked at again.
func (n *Node) open(ctx context.Context, a admission.Agreement, seen *evidence, void string) error {
	// rule: admission-compared
	if !a.NoQuarantine && seen.isBlank() {
		if err := n.mark(ctx, seen); err != nil {
			return err
		}
		return errChanged
	}
	r := a.Record(seen.server())
	r.Void = void
	keys := n.deploymentKeys()
	args := []string{script.Admit, seen.expected(a), r.Text(), seen.recordText, seen.info.flushes(), seen.noteText, seen.said()}
	switch {
	case seen.shard != nil:
		keys = keys[:1] // the record of the slot's master was written before
		args = append(args, strconv.FormatInt(seen.shard.master.epoch, 10))
	case a.NoQuarantine:
		args = append(args, "off")
	}
	reply, err := eval(ctx, n.conn, n.voting.Text, keys, args)
	switch {
	case err != nil:
		return err
	case reply.Int == -2:
		return errMoving
	case reply.Int < 0:
		return errChanged
	case reply.Int != 1:
		return &admission.WaitError{Reason: "it restarted or lost its role while it was being admitted"}
	}
	if seen.shard == nil {
		// Not before: a client that came meanwhile would take the server for one that has lost its record.
		if _, err := eval(ctx, n.conn, script.Voted(a.Deployment).Text, nil, nil); err != nil {
			return err
		}
	}
	if n.noteVote() {
		return nil
	}
	n.options.Logger.Info("node admitted", "node", n.Name(), "run_id", seen.run(), "deployment", a.Deployment)
	return nil
}

// mark makes the admission key that was looked at say what nobody has written before, and notes that in seen.
func (n *Node) mark(ctx context.Context, seen *evidence) error {
	mark := fmt.Sprintf("%s/%d %016d", n.options.Waiter, n.options.Clock.Now().Mono.UnixNano(), 0) // no other is the same
	_, err := eval(ctx, n.conn, script.Mark.Text, []string{n.admissionKey}, []string{mark, n.counterTTL, seen.said()})
	seen.marker = mark
	return err
}

// quarantine notes on the node that its quarantine begins now, and lasts for d at least.
func (n *Node) quarantine(ctx context.Context, d time.Duration, seen *evidence) error {
	// rule: quarantine-not-shortened
	note := admission.NewNote(seen.server(), seen.now, d).After(seen.noteText)
	reply, err := eval(ctx, n.conn, script.Quarantine.Text, n.deploymentKeys(),
		[]string{seen.run(), seen.info["master_replid"], note.Text(), seen.recordText, seen.noteText})
	if err == nil && reply.Int != 1 {
		return errChanged
	}
	return err
}

func (n *Node) deploymentKeys() []string {
	return deploymentKeys(n.options.Agreement.Deployment, n.options.slotTag)
}

// warn logs once that a node may evict locks.
func (n *Node) warn(e *evidence) {
	if !e.info.evicting() {
		return
	}
	n.admission.mu.Lock()
	warned := n.admission.warned
	n.admission.warned = true
	n.admission.mu.Unlock()
	if !warned {
		n.options.Logger.Warn("the node may evict locks to make room", "node", n.Name(), "maxmemory_policy", e.info["maxmemory_policy"])
	}
}
