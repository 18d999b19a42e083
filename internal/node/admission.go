package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Reasons for which a node does not vote; each is found by errors.Is in the
// Err of an answer.
var (
	ErrReplica  = errors.New("the node is a replica, which never votes: name its master")
	ErrEvicting = errors.New("the node may evict locks to make room: set maxmemory-policy noeviction")
)

// NotAdmittedError says why a node's vote does not count, and for how long.
type NotAdmittedError struct {
	Reason string
	// Left is how long until the node can be admitted, 0 when not known.
	Left time.Duration
	// RunID is the run an operator could vouch for.
	RunID string
}

func (e *NotAdmittedError) Error() string {
	if e.Left <= 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s; it can vote in %v", e.Reason, e.Left.Round(100*time.Millisecond))
}

// evidence is what admission is decided on.
type evidence struct {
	circumstance
	info   info
	record *record
	// recordText is what record was read from.
	recordText string
	// quarantine is "run seconds", since when this run has been kept out.
	quarantine string
	// now is the node's clock in seconds.
	now int64
	// unscripted: the node forbids scripts, and was looked at without one.
	unscripted bool
	// fsyncAlways: CONFIG GET appendfsync said so.
	fsyncAlways bool
}

func (e *evidence) run() string { return e.info["run_id"] }

// known reports whether this run, as the master that it is, was admitted before
// or vouched for. A run that was a replica in between took over its master's
// data, which may lack its own last writes; scripts it keeps.
func (e *evidence) known() bool {
	return e.record != nil && (e.record.Run == e.run() || e.record.Vouched == e.run()) &&
		(!e.info.promoted() || e.record.Reign == e.info["master_replid"])
}

// decision is nil error to admit, a *NotAdmittedError to wait, another error to
// refuse. watch asks for the quarantine to be counted from now on.
type decision struct {
	err   error
	watch bool
}

// decide applies the restart fence. The order of its cases is from what is
// certain to what is presumed.
func (d Deployment) decide(e *evidence) decision {
	run, uptime, quarantine := e.run(), e.info.uptime(), d.Quarantine()
	switch {
	case e.info["role"] != "" && e.info["role"] != "master":
		return decision{err: ErrReplica}
	case d.Strict && e.info.evicting():
		return decision{err: ErrEvicting}
	case e.record != nil && e.record.MaxTTLMS > d.MaxTTL.Milliseconds():
		return decision{err: fmt.Errorf("MaxTTL: the deployment %q was admitted here with %v, this client has %v: set MaxTTL to %[2]v",
			d.Name, time.Duration(e.record.MaxTTLMS)*time.Millisecond, d.MaxTTL)}
	case !d.Fenced:
		return decision{}
	case run == "":
		return decision{err: errors.New("RestartFence: the node's INFO names no run_id, so a restart could not be told: switch the fence off to use it all the same")}
	case e.info.keepsScripts():
		return decision{err: fmt.Errorf("RestartFence: server version %q may keep scripts through a restart: use Redis 7.0 or Valkey 7.2 or later, or switch the fence off", e.info["redis_version"])}
	case e.vouched, e.known():
		// The same run that was admitted before: a flushed script cache or a
		// changed agreement lost no lock.
		return decision{}
	}

	since, watched := e.watchedSince()
	waited := time.Duration(e.now-since) * time.Second
	switch {
	case watched && waited >= quarantine:
		return decision{}
	case watched:
		return decision{err: &NotAdmittedError{Reason: "it was promoted or reset, or its data was lost or replaced while it ran", Left: quarantine - waited, RunID: run}}
	case e.markerLost, e.record == nil && e.info.flushed():
		return decision{watch: true, err: &NotAdmittedError{Reason: "its data was deleted", Left: quarantine, RunID: run}}
	case e.info.promoted():
		return decision{watch: true, err: &NotAdmittedError{Reason: "it was promoted from replica, and may lack its master's last writes", Left: quarantine, RunID: run}}
	case uptime >= quarantine:
		return decision{}
	case e.keptItsWord():
		return decision{}
	}
	return decision{err: &NotAdmittedError{
		Reason: fmt.Sprintf("it started %v ago and may have forgotten locks of up to %v", uptime, d.MaxTTL),
		Left:   quarantine - uptime, RunID: run,
	}}
}

// keptItsWord reports that a restarted node has all that it ever granted: each
// write was on disk before its answer was sent, and the run before was not itself
// in doubt. A quarantine that is still noted was never over; and a node that has
// had replicas may be one of them in its master's place, which a restart since
// would hide.
func (e *evidence) keptItsWord() bool {
	return e.record != nil && !e.record.Replicated && e.quarantine == "" &&
		e.info.number("aof_enabled") == 1 && e.fsyncAlways
}

// watchedSince returns the node's second at which this run was first seen to
// have lost data. A snapshot may bring back another run's.
func (e *evidence) watchedSince() (int64, bool) {
	run, text, _ := strings.Cut(e.quarantine, " ")
	since, err := strconv.ParseInt(text, 10, 64)
	return since, err == nil && run == e.run()
}

func (e *evidence) quarantineText() string {
	return e.run() + " " + strconv.FormatInt(e.now, 10)
}
