package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/script"
)

// A Cluster's master is judged as a server is. Its record of the deployment lies in the last of its
// slots, which a resharding moves last, and says which slots it has and since when. The admission
// key of each slot lies in that slot, and so moves with its locks.

// master is a master of a Cluster, as one of the Cluster's servers knows it.
type master struct {
	id    string
	epoch int64
	held  admission.Slots
}

// last returns the slot where the master's record is, and home a tag of that slot.
func (m *master) last() uint16 { return m.held[len(m.held)-1].Last }
func (m *master) home() string { return hashslot.TagOf(m.last()) }

// askMasters asks any server of the Cluster which masters there are.
func askMasters(ctx context.Context, conn driver.Conn) ([]master, error) {
	reply, err := conn.Do(ctx, "CLUSTER", "NODES")
	if isReply(err) {
		if reply, err := conn.Do(ctx, "INFO", "server"); err == nil && parseInfo(reply.Text).hasMode("standalone") {
			return nil, fmt.Errorf("%w: %w", admission.ErrUnfit, errTopology[true])
		}
	}
	if err != nil {
		return nil, err
	}
	masters, _, err := parseMasters(plain(reply.Text))
	return masters, err
}

// plain removes what RESP3 puts before a text that is for people (RESP3 specification, "Verbatim
// string").
func plain(text string) string { return strings.TrimPrefix(text, "txt:") }

// parseMasters reads the reply of CLUSTER NODES: the masters that have slots. A line is "id address
// flags master ping pong epoch link slots...". A slot that is being moved appears in brackets, and
// also in the list of the master that still has it. myself is the id of the server that answered.
func parseMasters(text string) (masters []master, myself string, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) > 2 && strings.Contains(fields[2], "myself") {
			myself = fields[0]
		}
		if len(fields) < 9 || !strings.Contains(fields[2], "master") {
			continue
		}
		epoch, err := strconv.ParseInt(fields[6], 10, 64)
		m := master{id: fields[0], epoch: epoch}
		for _, slots := range fields[8:] {
			if strings.HasPrefix(slots, "[") {
				continue
			}
			first, last, ranged := strings.Cut(slots, "-")
			if !ranged {
				last = first
			}
			from, err1 := strconv.ParseUint(first, 10, 14)
			to, err2 := strconv.ParseUint(last, 10, 14)
			if err != nil || err1 != nil || err2 != nil || to < from {
				return nil, "", fmt.Errorf("CLUSTER NODES answered %q", line)
			}
			m.held = append(m.held, admission.SlotRange{First: uint16(from), Last: uint16(to)})
		}
		if len(m.held) > 0 {
			masters = append(masters, m)
		}
	}
	return masters, myself, nil
}

// shard is what a look at a slot found of its master and of the other masters.
type shard struct {
	slot   uint16
	master master
	others []master
}

func newShard(slot uint16, masters []master) (*shard, error) {
	s := &shard{slot: slot}
	for _, m := range masters {
		if _, ok := m.held.Since(slot); ok {
			s.master = m
		} else {
			s.others = append(s.others, m)
		}
	}
	if s.master.held == nil {
		return nil, driver.NotSent(fmt.Errorf("no master has slot %d", slot))
	}
	return s, nil
}

// errMoving says that some of the slot's keys may be at a server that is yet to get the slot.
var errMoving = &admission.WaitError{Reason: "its slot is being moved"}

// lookAtSlot asks the slot's master what admission depends on and, if whole is set, for the
// master's record.
func (n *Node) lookAtSlot(ctx context.Context, whole bool) (*evidence, error) {
	key := n.admissionKey
	var nodes driver.Reply
	var nodesErr error
	if whole {
		// The master's epoch comes first: where it is the same at the admission, the slot was not away since.
		nodes, nodesErr = eval(ctx, n.conn, script.Nodes.Text, []string{key}, nil)
	}
	e, values, err := n.inspectKeys(ctx, key)
	if err != nil {
		return nil, err
	}
	e.marker = values[0].Text
	if n.options.view != nil { // else a vote is sent without asking who has the slot
		n.votes.Store(n.options.inFlight.to(e.run()))
	}
	if !whole || !e.info.inCluster() {
		return e, nil
	}
	switch {
	case nodesErr != nil:
		return nil, nodesErr
	case len(nodes.Array) != 2:
		return nil, fmt.Errorf("CLUSTER NODES answered %v", nodes)
	case nodes.Array[0].Text != e.run():
		return nil, errChanged
	}
	masters, myself, err := parseMasters(nodes.Array[1].Text)
	if err != nil {
		return nil, err
	}
	if e.shard, err = newShard(hashslot.Of(n.options.slotTag), masters); err != nil {
		return nil, err
	}
	if e.shard.master.id != myself { // what is seen of this server says nothing of the one that has the slot
		return nil, errMoving
	}
	record := n.shardKey(&e.shard.master)
	home, values, err := n.inspectKeys(ctx, record)
	if err != nil {
		return nil, err
	}
	// Keys that were deleted after the admission key was read took the slot's locks with them.
	if home.run() != e.run() || home.info.flushes() != e.info.flushes() {
		return nil, errChanged
	}
	e.info, e.now, e.recordText = home.info, home.now, values[0].Text
	e.record, e.unreadable = admission.ParseRecord(record, e.recordText)
	if values[0].Kind == driver.Null {
		e.unreadable = admission.OfAnotherType(record)
	}
	return e, nil
}

// shardKey names the key of a master's record.
func (n *Node) shardKey(m *master) string {
	return deploymentKey("deployment", n.options.Agreement.Deployment, m.home())
}

// peer is another master of the Cluster.
type peer struct {
	server  admission.Server
	now     int64 // its clock in seconds
	flushed bool
	flushes int64
	record  *admission.Record
	err     error
}

// peers asks the other masters which servers they are, and for their records, in the order of
// shard.others. A master that does not answer has an error.
func (n *Node) peers(ctx context.Context, s *shard) []peer {
	ctx, cancel := context.WithTimeout(ctx, n.options.ConnectTimeout/2)
	defer cancel()
	peers := make([]peer, len(s.others))
	var all sync.WaitGroup
	for i := range s.others {
		all.Go(func() {
			key := n.shardKey(&s.others[i])
			e, values, err := n.inspectKeys(ctx, key)
			if err == nil {
				peers[i].server, peers[i].now = e.server(), e.now
				peers[i].flushed, peers[i].flushes = e.info.flushed(), e.info.flushCount()
				peers[i].record, err = admission.ParseRecord(key, values[0].Text)
			}
			peers[i].err = err
		})
	}
	all.Wait()
	return peers
}

// completeShard is complete for a slot.
func (n *Node) completeShard(ctx context.Context, a admission.Agreement, seen *evidence) admission.Evidence {
	e, s := seen.of(n.options.Strict), seen.shard
	e.Shard = &admission.Shard{Slot: s.slot, Held: s.master.held, Epoch: s.master.epoch, Masters: 1 + len(s.others)}
	if !e.NeedsOthers() && !e.Foreign(a, seen.marker) {
		return e
	}
	var masters []admission.Master
	for _, p := range n.peers(ctx, s) {
		n.count(&e.Others, a, n.options.Index, p.record, p.err)
		masters = append(masters, admission.Master{Server: p.server, Now: p.now, Answered: p.err == nil, Flushed: p.flushed, Flushes: p.flushes, Record: p.record})
	}
	e.Came(a, seen.marker, masters)
	return e
}

// register writes into the master's record which slots it has, unless the record says so already.
func (n *Node) register(ctx context.Context, a admission.Agreement, seen *evidence, e *admission.Evidence) error {
	r := a.Record(seen.server())
	if !e.Renew(r) {
		return nil
	}
	reply, err := eval(ctx, n.conn, script.Shard.Text, []string{n.shardKey(&seen.shard.master)},
		[]string{seen.run(), seen.info["master_replid"], r.Text(), seen.recordText, seen.info.flushes(), strconv.FormatInt(seen.now, 10)})
	if err == nil && reply.Int != 1 {
		return errChanged
	}
	return err
}
