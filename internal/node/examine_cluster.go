package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
)

// ClusterExamination is what one look at a Cluster found.
type ClusterExamination struct {
	// Err is why no seed said which masters there are.
	Err error
	// Masters are the masters that have slots.
	Masters []*MasterExamination
}

// MasterExamination is what one look at a master of a Cluster found. Its status is that of a name
// that nobody has used yet, in the slot that the master is known to have for the shortest time.
type MasterExamination struct {
	*Examination
	// Address is where the Cluster's clients find the master.
	Address string
	Slots   admission.Slots
	// State is the master's cluster_state, "" where it does not tell.
	State string
	// Record is what the master has recorded. It is set by Judge.
	Record *Record

	home uint16
}

// Look asks every master about itself, over a connection of its own that dial makes. It asks the
// servers at seeds which masters there are, one after the other until one answers. It waits for all
// answers, or for ctx, and changes nothing.
func (c *Cluster) Look(ctx context.Context, seeds []string, dial func(address string) (driver.Conn, error), lockKeys []string) *ClusterExamination {
	masters, addresses, err := c.survey(ctx, seeds, dial)
	if err != nil {
		return &ClusterExamination{Err: err}
	}
	x := &ClusterExamination{Masters: make([]*MasterExamination, len(masters))}
	var all sync.WaitGroup
	for i, m := range masters {
		all.Go(func() {
			found := &MasterExamination{Examination: new(Examination), Address: addresses[m.id], Slots: m.held, home: m.last()}
			x.Masters[i] = found
			conn, err := dial(found.Address)
			if err != nil {
				found.Err = err
				return
			}
			c.lookAtMaster(ctx, found, conn, masters, lockKeys)
		})
	}
	all.Wait()
	return x
}

// survey returns the masters that have slots, and the address of each by its id.
func (c *Cluster) survey(ctx context.Context, seeds []string, dial func(address string) (driver.Conn, error)) (masters []master, addresses map[string]string, err error) {
	var failed error
	for _, seed := range seeds {
		conn, err := dial(seed)
		if err == nil {
			ask, cancel := context.WithTimeout(ctx, c.options.ConnectTimeout)
			masters, addresses, err = askAddresses(ask, conn, seed)
			cancel()
			cut(conn) // Close would wait for the answer of a server that hangs
			conn.Close()
		}
		if err == nil {
			return masters, addresses, nil
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = errNoAnswer
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", seed, err))
	}
	return nil, nil, failed
}

// askAddresses asks the server at seed which masters there are, and where clients find them.
func askAddresses(ctx context.Context, conn driver.Conn, seed string) (masters []master, addresses map[string]string, err error) {
	masters, err = askMasters(ctx, conn)
	switch {
	case err != nil:
		return nil, nil, err
	case len(masters) == 0:
		return nil, nil, fmt.Errorf("%w: %w: give each slot a master", admission.ErrUnfit, errNoMasters)
	}
	reply, err := conn.Do(ctx, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, nil, err
	}
	addresses = make(map[string]string)
	for _, slots := range reply.Array {
		// First slot, last slot, the master (host, port, id, ...), its replicas.
		if len(slots.Array) < 3 || len(slots.Array[2].Array) < 3 {
			return nil, nil, fmt.Errorf("CLUSTER SLOTS answered %v", slots)
		}
		m := slots.Array[2].Array
		host := m[0].Text
		if host == "" { // the address that was asked (Redis documentation, "CLUSTER SLOTS")
			if host, _, err = net.SplitHostPort(seed); err != nil {
				return nil, nil, err
			}
		}
		addresses[m[2].Text] = net.JoinHostPort(host, strconv.FormatInt(m[1].Int, 10))
	}
	for _, m := range masters {
		if addresses[m.id] == "" {
			return nil, nil, errAmidChange
		}
	}
	return masters, addresses, nil
}

var (
	errNoMasters  = errors.New("no master of the Cluster has a slot yet")
	errAmidChange = errors.New("the Cluster changed while it was looked at: look again")
)

// lookAtMaster looks at the master behind conn, and closes conn.
func (c *Cluster) lookAtMaster(ctx context.Context, found *MasterExamination, conn driver.Conn, masters []master, lockKeys []string) {
	listening := conn
	if l, ok := c.conn.(driver.ShardListener); ok {
		// Waiters listen by the connections that a Cluster's clients have.
		listening = struct {
			driver.Conn
			driver.ShardListener
		}{conn, l}
	}
	o := c.options
	o.slotTag = hashslot.TagOf(found.home)
	n := New(listening, o)
	defer n.Close()
	defer cut(conn)
	found.Examination = n.Look(ctx, lockKeys)
	if found.Err != nil {
		return
	}
	if reply, err := conn.Do(ctx, "CLUSTER", "INFO"); err == nil {
		found.State = parseInfo(plain(reply.Text))["cluster_state"]
	}
	if found.State != "" && found.State != "ok" && found.refused == nil {
		found.refused = fmt.Errorf("its cluster_state is %s", found.State)
	}
	found.evidence.marker = "" // it is that of one slot, which may have come with its locks
	found.evidence.shard, found.Err = newShard(found.newest(), masters)
}

// newest returns the slot that the master's record knows for the shortest time, or not at all.
func (m *MasterExamination) newest() (slot uint16) {
	var known admission.Slots
	if r := m.evidence.record; r != nil {
		known = r.Slots
	}
	latest := int64(-1)
	for _, r := range m.Slots.After(known, math.MaxInt64) {
		if r.Since > latest {
			slot, latest = r.First, r.Since
		}
	}
	return slot
}

// Judge decides what each master's vote is worth. It is called after all nodes of the census were
// looked at. It changes nothing.
func (c *Cluster) Judge(ctx context.Context, x *ClusterExamination) {
	var all sync.WaitGroup
	for _, m := range x.Masters {
		all.Go(func() {
			n := c.slot(m.home) // this node can reach the other masters, too
			n.Judge(ctx, m.Examination)
			m.Record = n.JudgeRecord(ctx, m.Examination)
		})
	}
	all.Wait()
}
