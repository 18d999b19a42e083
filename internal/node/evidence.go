package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/script"
)

// evidence is what one look at a node found.
type evidence struct {
	info info
	// marker is the value of the admission key. recordText and noteText are the texts of the record
	// and of the note.
	marker, recordText, noteText string
	record                       *admission.Record
	// unreadable is why a key is not one of ours, nil where all are.
	unreadable error
	// now is the node's clock in seconds.
	now int64
	// shard is nil where the node is a server.
	shard *shard
}

func (e *evidence) server() admission.Server {
	received := int64(-1)
	if text, ok := e.info["total_net_repl_input_bytes"]; ok && !e.info.cleared() {
		received, _ = strconv.ParseInt(text, 10, 64)
		received += e.info.follows()
	}
	return admission.Server{Run: e.info["run_id"], ReplicationID: e.info["master_replid"], Received: received}
}

func (e *evidence) run() string { return e.info["run_id"] }

// history returns the run and the replication id, "" where the server does not show its run. A
// server that was demoted and promoted again has forgotten votes, in the same run.
func (e *evidence) history() string {
	if e.run() == "" {
		return ""
	}
	return e.run() + " " + e.info["master_replid"]
}

// expected returns the value of the admission key on this server once clients of the agreement were
// admitted, without the time at its end.
func (e *evidence) expected(a admission.Agreement) string {
	return a.ID() + " " + e.history()
}

// admits reports whether the marker is the one that clients with this expectation need.
func (e *evidence) admits(expected string) bool { return strings.HasPrefix(e.marker, expected+" ") }

// said returns what the admission key says, but for the time at its end.
func (e *evidence) said() string {
	const stamp = 1 + 16
	return e.marker[:max(0, len(e.marker)-stamp)]
}

// isBlank reports whether the node had nothing that would show, at its admission, that all keys were
// deleted meanwhile. The server counts what deletes all of them at once, but not what deletes one by
// one or swaps databases; and where its statistics were reset before, a further reset hides the count.
func (e *evidence) isBlank() bool {
	if e.shard != nil { // an admission does not read the record, which is in another slot
		return e.said() == "" && e.info.cleared()
	}
	return e.said() == "" && e.recordText == "" && e.noteText == ""
}

// of returns the part of the evidence that needs no further question.
func (e *evidence) of(strict bool) admission.Evidence {
	return admission.Evidence{
		Server: e.server(), Replica: e.isReplica(), Promoted: e.info.promoted(),
		Flushed: e.info.flushed(), Flushes: e.info.flushCount(), Evicting: strict && e.info.evicting(),
		Version: e.info["redis_version"], KeepsScripts: e.info.keepsScripts(), Uptime: e.info.uptime(),
		Now: e.now, Record: e.record, Note: e.noteText,
	}
}

func (e *evidence) isReplica() bool { return e.info["role"] != "" && e.info["role"] != "master" }

// inspectKeys runs inspect.lua, and returns the keys' values, Null for one that is not a string.
func (n *Node) inspectKeys(ctx context.Context, keys ...string) (*evidence, []driver.Reply, error) {
	reply, err := eval(ctx, n.conn, script.Inspect.Text, keys, nil)
	if err != nil {
		return nil, nil, err
	}
	return parseInspection(reply, len(keys))
}

func parseInspection(reply driver.Reply, keys int) (e *evidence, values []driver.Reply, err error) {
	if reply.Kind != driver.Array || len(reply.Array) != 2+keys {
		return nil, nil, fmt.Errorf("inspection answered %v", reply)
	}
	now, err := strconv.ParseInt(reply.Array[1+keys].Text, 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("inspection answered the time %q", reply.Array[1+keys].Text)
	}
	return &evidence{info: parseInfo(reply.Array[0].Text), now: now}, reply.Array[1 : 1+keys], nil
}

// readEvidence asks a server what admission depends on.
func (n *Node) readEvidence(ctx context.Context) (*evidence, error) {
	keys := n.deploymentKeys()
	e, values, err := n.inspectKeys(ctx, keys...)
	if err != nil {
		return nil, err
	}
	e.marker, e.recordText, e.noteText = values[0].Text, values[1].Text, values[2].Text
	e.record, e.unreadable = admission.ParseRecord(keys[1], e.recordText)
	for i, key := range keys[1:] { // an admission key of another type is overwritten
		if values[1+i].Kind == driver.Null {
			e.unreadable = admission.OfAnotherType(key)
		}
	}
	return e, nil
}

// complete adds to what was seen what else a decision for clients of a needs. The error says why the node could not
// be asked for it.
func (n *Node) complete(ctx context.Context, a admission.Agreement, seen *evidence) (admission.Evidence, error) {
	if seen.shard != nil {
		return n.completeShard(ctx, a, seen), nil
	}
	e := seen.of(n.options.Strict)
	if a.Durable {
		e.Sync = n.sync(ctx, seen.info)
	}
	if !e.NeedsOthers() {
		return e, nil
	}
	e.Others = n.others(ctx, a)
	if a.NoQuarantine || e.Record != nil {
		return e, nil
	}
	if e.Voted = seen.info.droppedScripts(); e.Voted {
		return e, nil
	}
	voted, err := n.hasScript(ctx, n.voting)
	if !voted && err == nil {
		voted, err = n.hasScript(ctx, script.Voted(a.Deployment))
	}
	e.Voted = voted
	return e, err
}

// others asks the other nodes for their records.
func (n *Node) others(ctx context.Context, a admission.Agreement) (o admission.Others) {
	census := n.options.Census
	ctx, cancel := context.WithTimeout(ctx, n.options.ConnectTimeout/2)
	defer cancel()
	type answer struct {
		node   int
		record *admission.Record
		err    error
	}
	answers := make(chan answer, len(census.names))
	for i, record := range census.readers() {
		if i != n.options.Index {
			n.background.Go(func() {
				r, err := record(ctx)
				answers <- answer{i, r, err}
			})
		}
	}
	for pending := len(census.names) - 1; pending > 0 && ctx.Err() == nil; {
		select {
		case got := <-answers:
			pending--
			n.count(&o, a, got.node, got.record, got.err)
		case <-ctx.Done():
		}
		if 1+o.Same+o.None > len(census.names)/2 {
			// A majority was read: a node that hangs is waited for no longer than in a step.
			time.AfterFunc(n.options.Patience/4, cancel)
		}
	}
	return o
}

// count takes in the record that was read from node i, nil where the node has none, or why it could not be read.
func (n *Node) count(o *admission.Others, a admission.Agreement, i int, r *admission.Record, err error) {
	switch {
	case errors.Is(err, admission.ErrLater): // of another agreement, whatever that is
		o.Differing = laterOn(n.options.Census.names[i], err)
		return
	case err != nil:
		return
	case r == nil:
		o.None++
		return
	}
	if theirs := r.Agreement(a.Deployment); theirs.ID() != a.ID() {
		o.Differing = &admission.DisagreementError{Recorded: theirs, Ours: a, Node: n.options.Census.names[i]}
		return
	}
	o.Same++
	o.Longest = max(o.Longest, r.LongestTTL())
}

// laterOn returns the error that a later version wrote the record on the node of that name.
func laterOn(name string, err error) error { return fmt.Errorf("on %s, %w", name, err) }

// record reads the node's own record.
func (n *Node) record(ctx context.Context) (*admission.Record, error) {
	key := n.key("deployment")
	reply, err := n.conn.Do(ctx, "GET", key)
	if err != nil {
		return nil, err
	}
	return admission.ParseRecord(key, reply.Text)
}

// sync asks whether every write is on disk before it is answered. Where the server does not show
// its settings, either may be the case.
func (n *Node) sync(ctx context.Context, f info) admission.Sync {
	if f.number("aof_enabled") != 1 {
		return admission.SyncOtherwise
	}
	fsync, err := n.setting(ctx, "appendfsync")
	rewrite, err2 := n.setting(ctx, "no-appendfsync-on-rewrite")
	switch {
	case errors.Join(err, err2) != nil || fsync == "" || rewrite == "":
		return admission.SyncUnseen
	case fsync == "always" && rewrite == "no":
		return admission.SyncAlways
	}
	return admission.SyncOtherwise
}

// setting returns a configuration value, "" where the server does not show it.
func (n *Node) setting(ctx context.Context, name string) (string, error) {
	reply, err := n.conn.Do(ctx, "CONFIG", "GET", name)
	if err != nil && !isReply(err) {
		return "", err
	}
	for i := 0; i+1 < len(reply.Array); i += 2 {
		if reply.Array[i].Text == name {
			return reply.Array[i+1].Text, nil
		}
	}
	return "", nil
}

// hasScript reports whether the server has s, by running it, the voting script with a step that does not
// exist: on some servers SCRIPT EXISTS is for administrators only.
func (n *Node) hasScript(ctx context.Context, s script.Script) (bool, error) {
	_, err := n.conn.EvalSHA(ctx, s.SHA, nil, []string{""})
	if err != nil && !isReply(err) {
		return false, err
	}
	return !isNoScript(err), nil
}

// lookByCommands looks at a node that forbids scripts. That is enough where nothing must be known
// of the node's past. What the node does not tell is left out.
func (n *Node) lookByCommands(ctx context.Context) (*evidence, error) {
	e, key := new(evidence), n.key("deployment")
	if n.isSlot() {
		// Any server of the Cluster answers INFO, which would say nothing of the slot's master.
		masters, err := askMasters(ctx, n.conn)
		if err != nil {
			return nil, err
		}
		s, err := newShard(hashslot.Of(n.options.slotTag), masters)
		if err != nil {
			return nil, err
		}
		e.info, key = info{"redis_mode": "cluster"}, n.shardKey(&s.master)
	} else {
		reply, err := n.conn.Do(ctx, "INFO")
		if err != nil && !isUnable(err) {
			return nil, err
		}
		e.info = parseInfo(reply.Text)
	}
	reply, err := n.conn.Do(ctx, "GET", key)
	if err != nil && !isUnable(err) {
		return nil, err
	}
	e.recordText = reply.Text
	e.record, e.unreadable = admission.ParseRecord(key, e.recordText)
	return e, nil
}
