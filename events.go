package redlatch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/quorum"
)

// Observer is told what becomes of the locks and the nodes of a client, for metrics, traces and
// alarms. Package otel makes OpenTelemetry metrics and spans of it.
//
// It has one method, and a type for each event, so that a later version can add events and fields
// without breaking those who implement it: switch on the type, and ignore types that you do not
// know.
//
// The goroutine to which an event happens calls Observe and waits for it, while the client holds no
// mutex. It is the goroutine that locks, extends or unlocks, one that asks whether the lock is
// lost, or one of the client's own. Several goroutines call Observe at once. Observe should return
// at once: a lock's time runs meanwhile, and its renewal waits. It may call Stats; it must not wait
// for the client, as Lock, Unlock and Close do. The client does not catch a panic: a lock that was
// being acquired is left to run out, and on a goroutine of the client's own the program ends.
//
// ctx has the values of the ctx that was passed to Lock, TryLock, Do or TryDo, and may be done. For
// events of nodes it is context.Background().
//
// Name is the name of the lock; of several names, the one that was given first.
//
// Each call that locks ends with LockAcquired or LockFailed, unless its arguments are refused, the
// client was closed before, or its WithWaitReport panics or calls runtime.Goexit. Each lock that
// was acquired ends with exactly one LockLost or LockReleased. LockExtended and LockNotExtended
// come in between, except those of an extension that is under way when the lock ends, which may be
// observed after that. LockReleased comes when the nodes have answered, which may be after the next
// holder's LockAcquired. NodeUnreachable and NodeReachable of one node alternate, beginning with
// NodeUnreachable, and never overlap. NodeAdmitted comes after the NodeQuarantined of its run.
// After Close has returned, nothing is observed.
//
// The calls of package oneshot are not observed.
type Observer interface {
	Observe(ctx context.Context, event Event)
}

// Event is one of LockAcquired, LockFailed, LockExtended, LockNotExtended, LockLost, LockReleased,
// NodeQuarantined, NodeAdmitted, NodeUnreachable and NodeReachable. Others may be added.
type Event interface{ event() }

// LockAcquired says that a call got its lock.
type LockAcquired struct {
	Name  string
	Token uint64
	// Waited is the time from the call until the lock was granted.
	Waited time.Duration
	// Tries is how many attempts were made for the call. RoundTrip is how long the last one took,
	// from before it was sent. Both are 0 for a call that holds by the attempt of a caller before
	// it.
	Tries     int
	RoundTrip time.Duration
}

// LockFailed says that a call did not get its lock.
type LockFailed struct {
	Name string
	// Err is what the call returns: errors.Is tells why (Client.Lock).
	Err error
	// Waited is the time from the call until it failed. Tries is how many attempts were made, as
	// Stats counts them.
	Waited time.Duration
	Tries  int
}

// LockExtended says that a quorum of nodes has extended a lock, by a renewal in the background or
// by Lock.Extend.
type LockExtended struct {
	Name  string
	Token uint64
	// Until is Lock.Until after the extension.
	Until time.Time
}

// LockNotExtended says that no quorum has extended a lock, or that Lock.Extend did not wait for one. The
// lock is held for as long as before, unless the answers that were not waited for extend it.
type LockNotExtended struct {
	Name  string
	Token uint64
	// Err says why: ErrNoQuorum, ErrRefused or ErrNotAdmitted in a *QuorumError, or the cause of
	// the ctx that Lock.Extend was given.
	Err error
	// Until is Lock.Until. A renewal in the background is tried again before that.
	Until time.Time
}

// LockLost says that a lock that was held is lost.
type LockLost struct {
	Name  string
	Token uint64
	// Err is what Lock.Err returns from now on. It wraps ErrLost, and ErrMaxHold if that ended the
	// lock.
	Err error
	// Gone: so many nodes have said that they do not hold the lock that no quorum is left. If Gone
	// is false, the validity of the lock ran out.
	Gone bool
	// Held is the time from the grant until the loss was found.
	Held time.Duration
}

// LockReleased says that a holder is done with a lock: by Unlock, at the end of Do, by Close or by
// Detach.
type LockReleased struct {
	Name  string
	Token uint64
	// Held is the time from the grant until then.
	Held time.Duration
	// Err is what Unlock or Close says of the lock, nil if all is well. errors.Is finds ErrLost if
	// the nodes did not hold the lock any more.
	Err error
}

// NodeQuarantined says that this client has asked a node for its vote, and that the node may have
// forgotten locks and does not vote yet. It is observed again when the quarantine turns out to end
// 5 s later or more.
type NodeQuarantined struct {
	Node string
	// RunID is the run of the server; in a Cluster, that of one of its masters.
	RunID  string
	Reason string
	// Until is when the quarantine ends by itself. Servers count in whole seconds, so it may be up to
	// two seconds later.
	Until time.Time
}

// NodeAdmitted says that a node whose quarantine was observed votes now. RunID is that of the
// quarantine. If a server has restarted since, or a Sentinel's master was replaced, it is another run
// that votes.
type NodeAdmitted struct {
	Node, RunID string
}

// NodeUnreachable says that a node could not be connected to, or has not answered a command for
// longer than NodeTimeout, when it was to be asked for its vote. A Cluster is unreachable when that
// is so of all slots that were used, or no master says which slots it has. Of packages etcd and
// zookeeper it is all servers together.
type NodeUnreachable struct {
	Node string
	Err  error
}

// NodeReachable says that a node that was unreachable answers.
type NodeReachable struct {
	Node string
}

func (LockAcquired) event()    {}
func (LockFailed) event()      {}
func (LockExtended) event()    {}
func (LockNotExtended) event() {}
func (LockLost) event()        {}
func (LockReleased) event()    {}
func (NodeQuarantined) event() {}
func (NodeAdmitted) event()    {}
func (NodeUnreachable) event() {}
func (NodeReachable) event()   {}

// observed is what the client notes of a call for the Observer; nil if there is none.
type observed struct {
	began time.Time
	tries atomic.Int64
}

// observed begins to note a call.
func (c *Client) observed() *observed {
	if c.config.Observer == nil {
		return nil
	}
	return &observed{began: c.clock.Mono()}
}

// try notes an attempt.
func (o *observed) try() {
	if o != nil {
		o.tries.Add(1)
	}
}

// observe tells the Observer of e. The caller has made sure that there is one. A lock that a call
// for several names takes on its way is not reported, as it is no lock of the program.
func (c *call) observe(e Event) {
	if c.whole == nil {
		c.client.config.Observer.Observe(c.ctx, e)
	}
}

// acquired counts the lock that the call got, and tells the Observer of it.
func (c *call) acquired() {
	if c.whole == nil {
		c.client.counters.acquired.Add(1)
	}
	if c.observed == nil {
		return
	}
	lease := c.lock.lease
	e := LockAcquired{Name: c.name, Token: lease.Token(), Waited: lease.Since().Mono.Sub(c.observed.began), Tries: int(c.observed.tries.Load())}
	if e.Tries > 0 {
		validity := c.settings.firstTTL - quorum.Drift(c.settings.firstTTL)
		e.RoundTrip = lease.Since().Mono.Sub(lease.Until().Mono.Add(-validity))
	}
	c.observe(e)
}

// failed tells the Observer why the call did not get its lock.
func (c *call) failed(err error) {
	if o := c.observed; o != nil {
		c.observe(LockFailed{Name: c.name, Err: err, Waited: c.client.clock.Mono().Sub(o.began), Tries: int(o.tries.Load())})
	}
}

// extended tells the Observer of an extension, or why it failed, except for one that Close has cut
// short.
func (l *Lock) extended(err error) {
	switch {
	case l.call.observed == nil:
	case err == nil:
		l.call.observe(LockExtended{Name: l.call.name, Token: l.lease.Token(), Until: l.lease.Until().Mono})
	case l.client.life.Err() == nil:
		l.call.observe(LockNotExtended{Name: l.call.name, Token: l.lease.Token(), Err: err, Until: l.lease.Until().Mono})
	}
}

// lost counts the loss of the lock, and tells the log and the Observer of it. err wraps reason.
func (l *Lock) lost(err, reason error) {
	if l.call.whole != nil {
		return
	}
	l.client.counters.lost.Add(1)
	l.client.config.Logger.Warn("lock lost", "name", l.call.name, "token", l.lease.Token(), "reason", reason)
	if l.call.observed != nil {
		l.call.observe(LockLost{Name: l.call.name, Token: l.lease.Token(), Err: err, Gone: errors.Is(reason, errImpossible), Held: l.heldFor()})
	}
}

// heldFor returns how long the lock has been held, or 0 if there is no Observer.
func (l *Lock) heldFor() time.Duration {
	if l.call.observed == nil {
		return 0
	}
	return l.client.clock.Now().Since(l.lease.Since())
}

// released tells the Observer that the lock was released after it had been held for so long.
func (l *Lock) released(held time.Duration, err error) {
	if l.call.observed != nil {
		l.call.observe(LockReleased{Name: l.call.name, Token: l.lease.Token(), Held: held, Err: err})
	}
}

// observeNode makes a node tell the Observer, if there is one.
func (c Config) observeNode(o *node.Options) {
	if c.Observer == nil {
		return
	}
	observe := func(e Event) { c.Observer.Observe(context.Background(), e) }
	o.Quarantined = func(wait *admission.WaitError, until time.Time) {
		observe(NodeQuarantined{Node: o.Name, RunID: wait.RunID, Reason: wait.Reason, Until: until})
	}
	o.Admitted = func(run string) { observe(NodeAdmitted{Node: o.Name, RunID: run}) }
	o.Reachable = c.observeReach(o.Name)
}

// observeReach returns a function that tells the Observer why the node with that name cannot be reached,
// or with nil that it can be again.
func (c Config) observeReach(name string) func(err error) {
	return func(err error) {
		var e Event = NodeReachable{Node: name}
		if err != nil {
			e = NodeUnreachable{Node: name, Err: err}
		}
		c.Observer.Observe(context.Background(), e)
	}
}
