// Package node is one voting server: its connection, the steps that run on it, and whether it may
// vote.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// Options say what a node is to its client.
type Options struct {
	// Name is the node's name in errors and in the deployment's node set.
	Name string
	// Index is the node's place in Census.
	Index  int
	Census *Census
	// Agreement is the same for all nodes of a client.
	Agreement admission.Agreement
	// Strict keeps out nodes that may evict locks. Clients need not agree on it.
	Strict bool
	// ConnectTimeout bounds connecting and inspecting.
	ConnectTimeout time.Duration
	// Replicas says which acknowledgement by replicas each vote needs.
	Replicas Replicas
	// Patience is how long a command may be unanswered before the node is asked for no further votes.
	Patience time.Duration
	// Waiter is the name of this client in the wait queues that nodes keep.
	Waiter string
	// Woken is called when the node wakes up a waiter of this client. Changed is called with each
	// watched key that has changed, and with "" when either message may have been missed. Neither
	// may block.
	Woken   func(vote.WakeUp)
	Changed func(key string)
	Logger  *slog.Logger
	// Clock is this machine's; nil is clock.System.
	Clock clock.Clock
	// Quarantined and Admitted, if set, are called with what is logged of quarantines: that one was
	// met, and that the run's is over, as the node votes. Reachable is called with the reason when
	// the node cannot be reached any more, and with nil when it can be again, one call after the
	// other. None may block.
	Quarantined func(wait *admission.WaitError, until time.Time)
	Admitted    func(run string)
	Reachable   func(err error)

	// slotTag is a tag of the Cluster slot that the node stands for, "" where the node is a server.
	// For a slot, the fields below are shared by the whole Cluster; view is nil where nothing is
	// promised about replaced masters.
	slotTag  string
	voting   script.Script
	inFlight *mastersInFlight
	// quarantines are the quarantines that were met, of all slots together.
	quarantines *quarantines
	// subscriptions counts the subscriptions of all slots.
	subscriptions *subscriptions
	view          *view
	// reach is nil when nobody is to be told of it.
	reach *Reach
}

// Node is one server. It is safe for concurrent use.
type Node struct {
	options Options
	conn    driver.Conn
	// admissionKey is the deployment's. counterTTL is how long a counter is kept: after the
	// quarantine the node's clock alone gives larger ones.
	admissionKey, counterTTL string

	link     link
	inFlight *inFlight
	// votes counts the votes under way: it is inFlight or, in a Cluster whose masters say who has the
	// slot, the inFlight of the slot's master, as soon as that is known.
	votes     atomic.Pointer[inFlight]
	cleanUps  cleanUps
	admission inspection
	replicas  *replicas // nil when none are asked for
	wakeUps   wakeUps
	unable    unable
	// voting is the deployment's voting script.
	voting script.Script

	life       context.Context // ends in Cut or Close
	end        context.CancelFunc
	background sync.WaitGroup

	closing      context.Context // ends when Close begins
	beginClosing context.CancelFunc
	cleaning     sync.WaitGroup // what works the clean-ups off
}

// New returns the node behind conn, which the node owns. It sends nothing yet.
func New(conn driver.Conn, o Options) *Node {
	n := &Node{
		options:      o,
		conn:         conn,
		admissionKey: deploymentKey("admitted", o.Agreement.Deployment, o.slotTag),
		counterTTL:   milliseconds(o.Agreement.Quarantine()),
	}
	n.inFlight = newInFlight()
	n.votes.Store(n.inFlight)
	if n.options.quarantines == nil {
		n.options.quarantines = &quarantines{server: true}
	}
	if n.options.Clock == nil {
		n.options.Clock = clock.System
	}
	if o.Reachable != nil && o.reach == nil {
		n.options.reach = NewReach(o.Reachable)
	}
	if l, ok := conn.(driver.Watcher); ok && o.Changed != nil {
		l.OnChange(o.Changed)
	}
	n.life, n.end = context.WithCancel(context.Background())
	n.closing, n.beginClosing = context.WithCancel(context.Background())
	if o.Replicas.Conn != nil {
		n.replicas = newReplicas(o.Replicas, n.key("barrier"), n.counterTTL)
	}
	if n.voting = o.voting; n.voting.SHA == "" {
		n.voting = script.Voting(o.Agreement.Deployment)
	}
	if o.slotTag == "" {
		o.Census.join(o.Index, n.record)
	}
	return n
}

// Name returns the node's name.
func (n *Node) Name() string { return n.options.Name }

// Reached reports whether the node has ever been looked at.
func (n *Node) Reached() bool { return n.link.seen.Load() != nil }

// Cut ends what is under way on the node, and breaks its connection. Close must follow.
func (n *Node) Cut() {
	n.end()
	cut(n.conn)
	if n.replicas != nil {
		cut(n.replicas.Conn)
	}
}

// cut breaks a connection that can be broken.
func cut(conn driver.Conn) {
	if c, ok := conn.(driver.Cutter); ok {
		c.Cut()
	}
}

// Close has what is still to be released tried once more, closes the connection and waits for the work
// in the background.
func (n *Node) Close() {
	n.finish()
	n.end()
	n.conn.Close()
	if n.replicas != nil {
		n.replicas.Conn.Close()
	}
	n.background.Wait()
}

// votingStep is a step of the voting script, as it is sent.
type votingStep struct {
	keys, args []string
	// expected is the place in args of what the step expects of the admission key, which vote fills
	// in; 0 for a step that does not depend on that key.
	expected int
	// refusal is what a step that depends on it answers where the node is not admitted.
	refusal int64
	// patience, if not 0, is used in place of Options.Patience.
	patience time.Duration
}

// vote sends a step of the voting script. A node that is not admitted, or does not know the script,
// is inspected, and asked once more if the inspection admits it: a step that was answered so was not
// executed.
func (n *Node) vote(ctx context.Context, s votingStep) (driver.Reply, error) {
	for try := 0; ; try++ {
		inFlight := n.votes.Load()
		seen, err := n.ready(ctx, inFlight, cmp.Or(s.patience, n.options.Patience))
		if err != nil {
			return driver.Reply{}, err
		}
		if s.expected > 0 {
			s.args[s.expected] = seen.expected
		}
		if n.options.view != nil { // the node is a slot of a Cluster
			err = n.hasSlot(ctx, seen)
		}
		var reply driver.Reply
		if err == nil {
			reply, err = n.conn.EvalSHA(ctx, n.voting.SHA, s.keys, s.args)
		}
		reply, err = n.answered(ctx, inFlight, seen, reply, err)
		reply, err = n.counted(ctx, seen, reply, err)
		// rule: noscript-never-eval
		notAdmitted := isNoScript(err) || err == nil && reply.Kind == driver.Int && reply.Int == s.refusal
		if s.expected == 0 || !notAdmitted {
			return reply, err
		}
		switch err := n.admit(ctx); {
		case err != nil:
			return driver.Reply{}, err
		case try > 0:
			return driver.Reply{}, errAdmissionChanges
		}
	}
}

// counted returns the reply to a vote after replicas have acknowledged a yes, where that is asked
// for.
func (n *Node) counted(ctx context.Context, seen *sighting, reply driver.Reply, err error) (driver.Reply, error) {
	// rule: replicas-acknowledge
	if err == nil && n.replicas != nil && (answer(reply, nil).Verdict == vote.Granted || done(reply, nil).Verdict == vote.Granted) {
		err = n.acknowledged(ctx, seen)
	}
	return reply, err
}

// ready waits until a command that inFlight counts may be sent: the connection stands, its server was
// inspected, and not too many others are under way. It returns that server. answered must follow, unless
// there is an error. No command is sent to a node where one has been unanswered for longer than patience.
func (n *Node) ready(ctx context.Context, inFlight *inFlight, patience time.Duration) (*sighting, error) {
	if n.silence(inFlight) > patience {
		n.noteReach(errSilent)
		return nil, driver.NotSent(errSilent)
	}
	if err := n.Connect(ctx); err != nil {
		return nil, err
	}
	if err := inFlight.votes.take(ctx); err != nil {
		return nil, err
	}
	seen := n.link.seen.Load()
	if seen.connection != n.link.connected.Load() { // what was seen is of another server
		return nil, n.ended(ctx, inFlight, inFlight.votes, driver.NotSent(errReconnected))
	}
	return seen, nil
}

// answered takes in how a command ended that was sent to the server that was seen, and returns that. An
// answer counts only if it came over the connection whose server was inspected.
func (n *Node) answered(ctx context.Context, inFlight *inFlight, seen *sighting, reply driver.Reply, err error) (driver.Reply, error) {
	// rule: inspected-connection
	if err == nil && seen.connection != n.conn.Connections() {
		reply, err = driver.Reply{}, errReconnected
	}
	if err == nil {
		n.noteReach(nil)
	}
	return reply, n.ended(ctx, inFlight, inFlight.votes, err)
}

var (
	errNoAnswer    = errors.New("it did not answer in time")
	errNoTime      = errors.New("its time was over")
	errSilent      = errors.New("unanswered commands are pending")
	errReconnected = errors.New("the connection was renewed under way")

	errAdmissionChanges = &admission.WaitError{Reason: "its admission is changing"}
)
