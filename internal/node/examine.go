package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
)

// Status is what a node's vote is worth to one client.
type Status uint8

const (
	// StatusUnclear says that the node could not be asked.
	StatusUnclear Status = iota
	// StatusAdmitted says that the node votes.
	StatusAdmitted
	// StatusAdmissible says that the first client that asks for a vote will have it admitted.
	StatusAdmissible
	// StatusWaiting says that the node may have forgotten locks, and will be admissible some time
	// later.
	StatusWaiting
	// StatusUnfit says that the node does not vote for this client until somebody mends something.
	StatusUnfit
)

var statuses = [...]string{"unclear", "admitted", "admissible", "waiting", "unfit"}

func (s Status) String() string {
	if int(s) < len(statuses) {
		return statuses[s]
	}
	return "Status(" + strconv.Itoa(int(s)) + ")"
}

// Examination is what one look at a node found.
type Examination struct {
	// Err is why the node could not be reached, or what ended the look. What was found before that
	// is kept.
	Err error

	// Latency is the median round trip.
	Latency time.Duration
	// Offset is how far the node's wall clock is ahead of this machine's, give or take OffsetError.
	Offset, OffsetError time.Duration
	ClockKnown          bool

	Server, Version, Role, RunID string
	Uptime                       time.Duration

	// Persistence says in words what outlives a restart. Durable: every answered command does.
	Persistence string
	Durable     bool

	MaxMemory int64
	Policy    string
	Evicting  bool

	User string
	// Missing are the ACL rules that the user lacks, such as +eval.
	Missing []string
	// Refusal is the first error other than a missing permission with which the
	// node answered a harmless command.
	Refusal error

	Status Status
	// Reason says why the status is less than Admissible, and Left for how long it is Waiting.
	Reason error
	Left   time.Duration
	// OtherSet has the nodes of the deployment as this node recorded them, where they are not the
	// client's.
	OtherSet []string

	// Recorded is what the node has recorded of the deployment, nil for nothing. Void is why the
	// word that it is durable is not believed.
	Recorded *admission.Agreement
	Void     string

	// Foreign are those keys of the named locks that no client can have written.
	Foreign []ForeignKey

	// evidence is what admission would be decided on. It is incomplete where refused is set, which is the
	// first refusal.
	evidence evidence
	refused  error
}

const (
	pings      = 7
	clockReads = 5
)

// Look asks the node about itself. It waits for the node's answers or for ctx. It changes no key
// and no setting, and admits nothing. It reads lockKeys and the keys beside them, and tries whether
// the user may use them.
func (n *Node) Look(ctx context.Context, lockKeys []string) *Examination {
	x := new(Examination)
	for _, step := range []func(context.Context, *Examination) error{
		n.lookAtInfo, n.lookAtLatency, n.lookAtClock, n.lookAtPersistence, n.lookAtRecord, n.lookAtUser,
		func(ctx context.Context, x *Examination) error { return n.lookAtForeignKeys(ctx, x, lockKeys) },
		func(ctx context.Context, x *Examination) error { return n.lookAtPermissions(ctx, x, lockKeys) },
	} {
		if err := step(ctx, x); err != nil {
			if x.Err = err; errors.Is(err, context.DeadlineExceeded) {
				x.Err = errNoAnswer
			}
			return x
		}
	}
	return x
}

func (n *Node) lookAtInfo(ctx context.Context, x *Examination) error {
	reply, err := n.conn.Do(ctx, "INFO", "all")
	if err != nil && !forbidden(err) {
		return err // this was the first contact: a wrong password, or a certificate
	}
	f := parseInfo(reply.Text)
	x.refused, x.evidence.info = err, f
	x.Persistence = "unknown"
	if err != nil {
		return nil
	}
	x.Server = cmp.Or(f["server_name"], "redis")
	x.Version = cmp.Or(f[x.Server+"_version"], f["redis_version"])
	x.Role, x.RunID, x.Uptime = f["role"], f["run_id"], f.uptime()
	x.MaxMemory, x.Policy, x.Evicting = f.number("maxmemory"), f["maxmemory_policy"], f.evicting()
	n.reportRun(x.RunID)
	return nil
}

// lookAtLatency measures the median round trip.
func (n *Node) lookAtLatency(ctx context.Context, x *Examination) error {
	trips := make([]time.Duration, pings)
	for i := range trips {
		sent := time.Now()
		if _, err := n.conn.Do(ctx, "PING"); err != nil && !isReply(err) {
			return err
		}
		trips[i] = time.Since(sent)
	}
	slices.Sort(trips)
	x.Latency = trips[pings/2]
	return nil
}

// lookAtClock compares the node's wall clock with this machine's. The node read its clock at some
// time during the round trip, so the quickest round trip tells most (Cristian, "Probabilistic clock
// synchronization", 1989).
func (n *Node) lookAtClock(ctx context.Context, x *Examination) error {
	for range clockReads {
		sent := time.Now()
		reply, err := n.conn.Do(ctx, "TIME")
		half := time.Since(sent) / 2
		switch {
		case isReply(err):
			x.refused = cmp.Or(x.refused, err)
			return nil
		case len(reply.Array) != 2: // no answer, or one that is no time
			return err
		}
		seconds, err1 := strconv.ParseInt(reply.Array[0].Text, 10, 64)
		micros, err2 := strconv.ParseInt(reply.Array[1].Text, 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		x.evidence.now = seconds
		if !x.ClockKnown || half < x.OffsetError {
			x.ClockKnown, x.OffsetError = true, half
			x.Offset = time.Unix(seconds, micros*1000).Sub(sent.Add(half))
		}
	}
	return nil
}

// lookAtPersistence says what outlives a restart, as far as the server tells.
func (n *Node) lookAtPersistence(ctx context.Context, x *Examination) error {
	fsync, err := n.setting(ctx, "appendfsync")
	if err != nil {
		return err
	}
	save, err := n.setting(ctx, "save")
	if err != nil {
		return err
	}
	x.Durable = n.sync(ctx, x.evidence.info) == admission.SyncAlways
	var kept []string
	if x.evidence.info.number("aof_enabled") == 1 {
		kept = append(kept, "AOF "+cmp.Or(fsync, "fsync unknown"))
	}
	if save != "" {
		kept = append(kept, "RDB")
	}
	switch {
	case len(kept) > 0:
		x.Persistence = strings.Join(kept, " and ")
	case fsync != "": // otherwise this user may not see the settings
		x.Persistence = "none"
	}
	return nil
}

// lookAtRecord reads what the deployment keeps on the node.
func (n *Node) lookAtRecord(ctx context.Context, x *Examination) error {
	keys := n.deploymentKeys()
	texts := make([]string, len(keys))
	e := &x.evidence
	for i, key := range keys {
		reply, err := n.conn.Do(ctx, "GET", key)
		switch {
		case isWrongType(err) && i == 0: // an admission key of another type is overwritten
		case isWrongType(err):
			e.unreadable = admission.OfAnotherType(key)
		case isReply(err):
			x.refused = cmp.Or(x.refused, err)
		case err != nil:
			return err
		}
		texts[i] = reply.Text
	}
	e.marker, e.recordText, e.noteText = texts[0], texts[1], texts[2]
	record, err := admission.ParseRecord(keys[1], texts[1])
	e.record, e.unreadable = record, cmp.Or(e.unreadable, err)
	if record != nil {
		recorded := record.Agreement(n.options.Agreement.Deployment)
		x.Recorded, x.Void = &recorded, record.Void
	}
	return nil
}

func (n *Node) lookAtUser(ctx context.Context, x *Examination) error {
	reply, err := n.conn.Do(ctx, "ACL", "WHOAMI")
	if err != nil && !isReply(err) {
		return err
	}
	x.User = reply.Text
	return nil
}

// Judge decides what the node's vote is worth, as its admission would be decided. It is called
// after all nodes of the census were looked at. It changes nothing on the node.
func (n *Node) Judge(ctx context.Context, x *Examination) {
	switch {
	case x.Err != nil:
		x.Status, x.Reason = StatusUnclear, x.Err
		return
	case x.evidence.info.inCluster() && !n.isSlot(): // it also refuses what another master has
		x.Status, x.Reason = StatusUnfit, errTopology[false]
		return
	case x.evidence.info.isSentinel():
		x.Status, x.Reason = StatusUnfit, errSentinel
		return
	case x.refused != nil:
		x.Status, x.Reason = StatusUnfit, x.refused
		return
	case x.evidence.unreadable != nil:
		x.Status, x.Reason = StatusUnfit, x.evidence.unreadable
		return
	}
	if double, ok := errors.AsType[*DuplicateError](n.options.Census.Err()); ok && double.RunID == x.RunID {
		x.Status, x.Reason = StatusUnfit, double
		return
	}
	a := n.options.Agreement
	if x.Status, x.Left, x.Reason = n.statusFor(ctx, a, &x.evidence); x.Status == StatusUnclear {
		x.Err = x.Reason
	}
	if other, ok := errors.AsType[*admission.DisagreementError](x.Reason); ok && !slices.Equal(other.Recorded.Nodes, a.Nodes) {
		x.OtherSet = other.Recorded.Nodes
	}
}

// statusFor returns what the node's vote is worth to clients of a, by the evidence e; for how long it is
// StatusWaiting, if that is known; and why it is less than StatusAdmissible, or is not known.
func (n *Node) statusFor(ctx context.Context, a admission.Agreement, e *evidence) (s Status, left time.Duration, reason error) {
	whole, err := n.complete(ctx, a, e)
	if err != nil {
		return StatusUnclear, 0, err
	}
	decision := admission.Decide(a, whole)
	switch decision.Outcome {
	case admission.Admit:
		if !e.admits(e.expected(a)) {
			return StatusAdmissible, 0, nil
		}
		switch admitted, err := n.hasScript(ctx, n.voting); {
		case err != nil:
			return StatusUnclear, 0, err
		case !admitted:
			return StatusAdmissible, 0, nil
		}
		return StatusAdmitted, 0, nil
	case admission.Refuse:
		return StatusUnfit, 0, decision.Err
	}
	if waiting, ok := errors.AsType[*admission.WaitError](decision.Err); ok {
		left = waiting.Left
	}
	return StatusWaiting, left, decision.Err
}
