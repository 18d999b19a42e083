package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// inspectPause keeps a node that is not admitted from being inspected for every
// attempt.
const inspectPause = 50 * time.Millisecond

// errUnfit marks what waiting does not cure.
var errUnfit = errors.New("the node cannot serve this client")

// admission is what is known of a node's right to vote.
type admission struct {
	mu      sync.Mutex // guards what follows; nothing is called while it is held
	current *greeting
	outcome error
	at      time.Time
	warned  bool
}

// admit inspects the node, unless somebody does or has just done, and returns
// nil when it may vote now.
func (n *Node) admit(ctx context.Context, markerLost bool) error {
	a := &n.admission
	a.mu.Lock()
	g := a.current
	if g == nil && a.outcome != nil && time.Since(a.at) < inspectPause {
		outcome := a.outcome
		a.mu.Unlock()
		return outcome
	}
	if g == nil {
		g = &greeting{done: make(chan struct{})}
		a.current = g
		n.background.Go(func() {
			ctx, cancel := context.WithTimeout(n.life, n.options.ConnectTimeout)
			defer cancel()
			_, g.err = n.inspect(ctx, circumstance{markerLost: markerLost})
			a.mu.Lock()
			a.current = nil
			a.mu.Unlock()
			close(g.done)
		})
	}
	a.mu.Unlock()
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return &NotAdmittedError{Reason: "it is being inspected"}
	}
}

// circumstance is what the one who asks for an inspection knows beside what the
// node says.
type circumstance struct {
	// markerLost: the voting script was there and the admission key was not.
	markerLost bool
	// vouched: an operator speaks for the node's present run. spoken: just now.
	vouched, spoken bool
	// greeting: nobody asks for a vote yet.
	greeting bool
}

// errChanged says that a node was not admitted, and is to be looked at again: another client
// may have been quicker.
var errChanged = &NotAdmittedError{Reason: "its data or its record changed while it was being admitted"}

// inspect looks at the node and admits it if it may vote; the error says why it
// may not, or why it could not be looked at. It returns the number of the
// connection that it looked through.
func (n *Node) inspect(ctx context.Context, why circumstance) (connection uint64, err error) {
	for range maxLooks {
		if connection, err = n.look(ctx, why); !errors.Is(err, errChanged) {
			break
		}
	}
	return connection, err
}

// maxLooks is how often a node is looked at that others are admitting.
const maxLooks = 5

// look is inspect, made once.
func (n *Node) look(ctx context.Context, why circumstance) (connection uint64, err error) {
	reply, err := eval(ctx, n.conn, script.Inspect.Text, n.deploymentKeys()[1:], nil)
	connection = n.conn.Connections()
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && refusal.Redirects() && !n.isSlot() {
		return connection, fmt.Errorf("%w: %w: %w", errUnfit, errTopology[false], err)
	}
	var e *evidence
	if isUnable(err) && why.greeting && !n.options.Deployment.Fenced {
		e, err = n.gatherByCommands(ctx)
	} else if err == nil {
		e, err = gather(reply)
	}
	if err != nil {
		return connection, err
	}
	e.circumstance = why
	n.link.seen.Store(&sighting{connection: connection, run: e.run()})
	if !n.isSlot() {
		n.options.Census.report(n.options.Index, e.run())
	}
	err = n.judge(ctx, e)
	if errors.Is(err, errUnfit) {
		n.link.broken() // no vote counts, not even one that the server would give
	}
	n.admission.mu.Lock()
	n.admission.outcome, n.admission.at = err, time.Now()
	n.admission.mu.Unlock()
	return connection, err
}

// Vouch admits the node's present run on an operator's word. The error says why
// it cannot be, or why it could not be asked.
func (n *Node) Vouch(ctx context.Context) error {
	if err := n.connect(ctx); err != nil {
		return err
	}
	_, err := n.inspect(ctx, circumstance{vouched: true, spoken: n.isSlot()})
	return err
}

// judge decides on the evidence and carries the decision out on the node.
func (n *Node) judge(ctx context.Context, e *evidence) error {
	if err := n.options.Census.Err(); err != nil {
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	names, err := n.options.Deployment.reconcile(e.record, n.options.Census)
	if errors.Is(err, ErrUnseen) {
		return driver.NotSent(err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	if e.info.inCluster() != n.isSlot() {
		return fmt.Errorf("%w: %w", errUnfit, errTopology[n.isSlot()])
	}
	n.use(names)
	n.warn(e)
	if e.unscripted {
		// It votes in one-shot calls alone, which need no admission then.
		if err := n.options.Deployment.decide(e).err; err != nil {
			return fmt.Errorf("%w: %w", errUnfit, err)
		}
		return nil
	}
	if n.isSlot() {
		e.vouched = e.vouched || n.vouchedFor(ctx, e)
	} else if n.options.Deployment.Fenced && e.record == nil && n.hasScript(ctx, n.voting.Load().SHA) {
		// This run was admitted, and no longer knows: its keys were deleted.
		e.markerLost = true
	}
	if e.record != nil && e.info.number("aof_enabled") == 1 {
		e.fsyncAlways = n.fsyncAlways(ctx)
	}
	switch d := n.options.Deployment.decide(e); {
	case d.err == nil:
		return n.open(ctx, e)
	case d.watch:
		// A run that was promoted may know the script, from when it was a master
		// before, and have the admission from its last one.
		if _, err := n.conn.Do(ctx, "DEL", n.admissionKey); err != nil {
			return err
		}
		if _, err := n.conn.Do(ctx, "SET", n.key("quarantine"), e.quarantineText(),
			"EX", strconv.Itoa(int(2*n.options.Deployment.Quarantine()/time.Second)+1)); err != nil {
			return err
		}
		return d.err
	case isNotAdmitted(d.err):
		return d.err
	case errors.Is(d.err, ErrReplica) && n.seek(): // others choose the master
		return driver.NotSent(d.err)
	default:
		return fmt.Errorf("%w: %w", errUnfit, d.err)
	}
}

// seek has the connection look for another server, where there may be one.
func (n *Node) seek() bool {
	seeker, ok := n.conn.(driver.Seeker)
	return ok && seeker.Seek()
}

// open admits the run that was looked at, which also loads the voting script.
func (n *Node) open(ctx context.Context, e *evidence) error {
	d := n.options.Deployment
	r := &record{Run: e.run(), Reign: e.info["master_replid"], Nodes: n.options.Census.members(), MaxTTLMS: d.MaxTTL.Milliseconds()}
	if e.record != nil {
		r.Nodes, r.Vouched = mergeRuns(e.record.Nodes, r.Nodes), e.record.Vouched
		r.Replicated = e.record.Replicated
	}
	r.Replicated = r.Replicated || e.info.number("connected_slaves") > 0
	if e.vouched {
		r.Vouched = e.run()
	}
	if e.spoken {
		if err := n.vouch(ctx, e); err != nil {
			return err
		}
	}
	reply, err := eval(ctx, n.conn, n.voting.Load().Text, n.deploymentKeys(),
		[]string{script.Admit, e.run(), r.text(), e.recordText, e.info.flushes()})
	switch {
	case err != nil:
		return err
	case reply.Int < 0:
		return errChanged
	case reply.Int != 1:
		return &NotAdmittedError{Reason: "it restarted or lost its role while it was being admitted"}
	}
	n.options.Logger.Info("node admitted", "node", n.Name(), "run_id", e.run(), "deployment", d.Name)
	return nil
}

// mergeRuns keeps the recorded names and brings their runs up to date.
func mergeRuns(recorded, seen map[string]string) map[string]string {
	merged := make(map[string]string, len(recorded))
	for name, run := range recorded {
		if fresh := seen[name]; fresh != "" {
			run = fresh
		}
		merged[name] = run
	}
	return merged
}

func (n *Node) deploymentKeys() []string {
	return []string{n.key("admitted"), n.key("deployment"), n.key("quarantine")}
}

// gather reads the reply of inspect.lua.
func gather(reply driver.Reply) (*evidence, error) {
	if reply.Kind != driver.Array || len(reply.Array) != 4 {
		return nil, fmt.Errorf("inspection answered %v", reply)
	}
	field := reply.Array
	r, err := parseRecord(field[1].Text)
	if err != nil {
		return nil, err
	}
	now, err := strconv.ParseInt(field[3].Text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("inspection answered the time %q", field[3].Text)
	}
	return &evidence{info: parseInfo(field[0].Text), record: r, recordText: field[1].Text, quarantine: field[2].Text, now: now}, nil
}

// gatherByCommands looks at a node that forbids scripts, which is enough where
// nothing has to be known of its past. What it does not tell is left out.
func (n *Node) gatherByCommands(ctx context.Context) (*evidence, error) {
	e := &evidence{unscripted: true}
	reply, err := n.conn.Do(ctx, "INFO")
	if err != nil && !isUnable(err) {
		return nil, err
	}
	e.info = parseInfo(reply.Text)
	reply, err = n.conn.Do(ctx, "GET", n.key("deployment"))
	if err != nil && !isUnable(err) {
		return nil, err
	}
	e.record, err = parseRecord(reply.Text)
	return e, err
}

// fsyncAlways asks whether the append-only file is synced before each reply. A
// server that does not say is taken not to.
func (n *Node) fsyncAlways(ctx context.Context) bool {
	reply, err := n.conn.Do(ctx, "CONFIG", "GET", "appendfsync")
	if err != nil {
		return false
	}
	for i := 0; i+1 < len(reply.Array); i += 2 {
		if reply.Array[i].Text == "appendfsync" {
			return reply.Array[i+1].Text == "always"
		}
	}
	return false
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

// hasScript reports whether the server has a voting script, by asking for a step
// that there is none of: SCRIPT EXISTS is for administrators on some servers.
func (n *Node) hasScript(ctx context.Context, sha string) bool {
	_, err := n.conn.EvalSHA(ctx, sha, nil, []string{""})
	return isReply(err) && !isNoScript(err)
}
