//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// clusterTimeout is after how long without an answer the Cluster takes a master to be down.
const clusterTimeout = time.Second

// clustered is a node that is a Redis Cluster, with three masters and a replica each.
// A part is the set of hash slots that one of the masters had in the beginning. After each fault
// one master has all slots of a part again.
type clustered struct {
	cluster *redistest.Cluster
	probes  []string // the probe's lock in each part
	names   []string // the locks that the workers contend for
	binary  string
}

// inPart returns a name whose hash slot is in the part, from 1: the given name, or the name with a
// suffix.
func inPart(name string, part int) string {
	for n := 0; ; n++ {
		candidate := name
		if n > 0 {
			candidate = fmt.Sprintf("%s.%d", name, n)
		}
		if partOfSlot(int(hashslot.Of(candidate))) == part {
			return candidate
		}
	}
}

// partOfSlot returns the part, from 1, that a hash slot is in. The parts are as redistest gives the slots
// to the masters.
func partOfSlot(slot int) int {
	parts := Cluster.parts()
	for part := 1; ; part++ {
		if slot < hashslot.Slots*part/parts {
			return part
		}
	}
}

func startClustered(ctx context.Context, o Options, binary string) (*clustered, error) {
	c, err := redistest.StartClusterWithReplicas(ctx, Cluster.parts(), 1, redistest.Options{Binary: binary, Args: []string{
		"--cluster-node-timeout", fmt.Sprint(clusterTimeout.Milliseconds()),
		// While one master is down, the others go on.
		"--cluster-require-full-coverage", "no",
		// A master that lost all its slots must not become a replica, as it gets them back.
		"--cluster-allow-replica-migration", "no",
		"--appendonly", "yes",
	}})
	if err != nil {
		return nil, err
	}
	return &clustered{cluster: c, probes: o.probeNames(), names: o.lockNames(), binary: binary}, nil
}

func (c *clustered) urls() []string {
	m := c.cluster.Masters
	return []string{fmt.Sprintf("redis://%s?addr=%s&addr=%s#%s", m[0].Addr(), m[1].Addr(), m[2].Addr(), composedName)}
}

func (c *clustered) labels() []string {
	labels := make([]string, len(c.cluster.Members()))
	for i := range labels {
		labels[i] = fmt.Sprintf("server %d", i+1)
	}
	return labels
}

func (c *clustered) kind() string {
	return fmt.Sprintf("%s %s, a Cluster of three masters with a replica each", filepath.Base(c.binary), c.cluster.Masters[0].Version())
}

func (c *clustered) settle(int, side) {}

func (c *clustered) close() error { return c.cluster.Close() }

// master returns the server that has the slots of the part now.
func (c *clustered) master(part int) (*redistest.Server, error) {
	return c.cluster.Owner(int(hashslot.Of(c.probes[part-1])))
}

// number returns the index of a server in labels.
func (c *clustered) number(s *redistest.Server) int { return slices.Index(c.cluster.Members(), s) }

func (c *clustered) run(_ context.Context, part int) string {
	s, err := c.master(part)
	if err != nil {
		return ""
	}
	return fmt.Sprint(c.number(s), " ", s.PID())
}

func (c *clustered) look(ctx context.Context, names []string) []history.Look {
	return lookBy(ctx, c.keeper, names)
}

// keeper dials the server that has the keys of a name, and returns the index of that server.
func (c *clustered) keeper(ctx context.Context, name string) (*redistest.Conn, int, error) {
	s, err := c.cluster.Owner(int(hashslot.Of(name)))
	if err != nil {
		return nil, 0, err
	}
	conn, err := s.Dial(ctx)
	return conn, c.number(s), err
}

// ready blocks until every slot has a master and all replicas have their data.
func (c *clustered) ready(ctx context.Context, _ item) error { return c.cluster.AwaitServing(ctx) }

func (c *clustered) begin(ctx context.Context, it item) (hit []int, undo func() error, err error) {
	always := context.WithoutCancel(ctx)
	master, err := c.master(it.part)
	if err != nil {
		return nil, nil, err
	}
	hit = []int{c.number(master)}
	switch it.kind {
	case killNode:
		master.Kill()
		return hit, func() error { return c.cluster.Restart(always, master) }, nil
	case wipeNode:
		master.Kill()
		return hit, func() error { return c.cluster.RestartEmpty(always, master) }, nil
	case hangNode:
		return hit, master.Resume, master.Pause()
	case failover:
		replica, err := c.replica(master)
		if err != nil {
			return hit, nil, err
		}
		if it.hard {
			return hit, nil, c.behind(always, it, master, func() error { return c.cluster.FailOverByForce(always, replica) })
		}
		return hit, nil, c.cluster.FailOver(always, replica)
	case takeover:
		replica, err := c.replica(master)
		if err != nil {
			return hit, nil, err
		}
		return hit, func() error { return c.takeOver(always, it, replica, master) }, c.takeOver(always, it, master, replica)
	case settings, flush, scripts:
		undo, err := disturb(ctx, it, master)
		return hit, undo, err
	case moveSlot:
		undo, err := c.move(always, it, master)
		return hit, undo, err
	case fixSlots:
		master.Kill()
		undo := func() error { return c.mend(always, it, master) }
		if _, err := c.cluster.Fix(always); err != nil {
			return hit, undo, err
		}
		return hit, undo, nil
	}
	panic("torture: no such fault of a Cluster: " + string(it.kind))
}

// replica returns a replica of the master.
func (c *clustered) replica(master *redistest.Server) (*redistest.Server, error) {
	replicas, err := c.cluster.ReplicasOf(master)
	if err == nil && len(replicas) == 0 {
		err = fmt.Errorf("%s has no replica", master.Addr())
	}
	if err != nil {
		return nil, err
	}
	return replicas[0], nil
}

// takeOver has a replica take the place of its master without asking the other masters. If the fault
// is hard, the replica lacks the last writes.
func (c *clustered) takeOver(ctx context.Context, it item, master, replica *redistest.Server) error {
	takeOver := func() error { return c.cluster.TakeOver(ctx, replica) }
	if it.hard {
		return c.behind(ctx, it, master, takeOver)
	}
	return takeOver()
}

// behind holds back the replication of a master, waits for writes, and calls do while the replicas
// lack these writes.
func (c *clustered) behind(ctx context.Context, it item, master *redistest.Server, do func() error) error {
	if err := c.cluster.HoldReplication(ctx, master, true); err != nil {
		return err
	}
	wait(ctx, it.delay) // so that there are locks that the replicas do not know
	return errors.Join(do(), c.cluster.HoldReplication(ctx, master, false))
}

// move moves the slot of a name to another master, key by key. undo moves it back.
func (c *clustered) move(ctx context.Context, it item, from *redistest.Server) (undo func() error, err error) {
	mine := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool {
		return partOfSlot(int(hashslot.Of(name))) != it.part
	})
	if len(mine) == 0 {
		mine = []string{c.probes[it.part-1]} // there are fewer names than masters
	}
	slot := int(hashslot.Of(mine[it.whom%len(mine)]))
	other := 1 + (it.part+it.whom%2)%Cluster.parts()
	to, err := c.master(other)
	if err != nil {
		return nil, err
	}
	slowly := func(string) { wait(ctx, it.delay) }
	return func() error { return c.cluster.MoveSlot(ctx, slot, from, slowly) }, c.cluster.MoveSlot(ctx, slot, to, slowly)
}

// mend starts a master whose slots the other masters were given, and gives the slots back to it. Slots
// with keys are moved key by key.
func (c *clustered) mend(ctx context.Context, it item, master *redistest.Server) error {
	restart := c.cluster.Restart
	if it.hard {
		restart = c.cluster.RestartEmpty
	}
	if err := restart(ctx, master); err != nil {
		return err
	}
	if err := c.cluster.AwaitServing(ctx); err != nil {
		return err
	}
	// A master without slots may have become a replica of its former replica (Valkey 8.0 does that).
	master, err := c.cluster.MasterOf(master)
	if err != nil {
		return err
	}
	others, err := c.cluster.SlotsOf(master)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(slot int) bool { return partOfSlot(slot) != it.part }) {
		return fmt.Errorf("%s, which was to get its slots back, follows a master of others", master.Addr())
	}
	// When Redis 7.0 loses a slot it deletes the keys, but not from its append-only file. So
	// they may have come back with the restart, and would prevent the move of newer ones.
	if _, err := master.Do("FLUSHALL"); err != nil {
		return err
	}
	used, err := c.used(ctx)
	if err != nil {
		return err
	}
	var empty []int
	for slot := range hashslot.Slots {
		if partOfSlot(slot) != it.part {
			continue
		}
		if !used[slot] {
			empty = append(empty, slot)
		} else if err := c.cluster.MoveSlot(ctx, slot, master, nil); err != nil {
			return err
		}
	}
	return c.cluster.GiveSlots(ctx, master, empty...)
}

// used returns the slots that have keys, and those of all names.
func (c *clustered) used(ctx context.Context) (map[int]bool, error) {
	used := map[int]bool{}
	for _, name := range slices.Concat(c.names, c.probes) {
		used[int(hashslot.Of(name))] = true
	}
	for _, s := range c.cluster.Living() {
		conn, err := s.Dial(ctx)
		if err != nil {
			return nil, err
		}
		reply, err := conn.Do("KEYS", "*")
		conn.Close()
		if err != nil {
			return nil, err
		}
		keys, _ := reply.([]any)
		for _, key := range keys {
			used[int(hashslot.Of(fmt.Sprint(key)))] = true
		}
	}
	return used, nil
}
