//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// composedName is the name by which clients know the one node.
const composedName = "n1"

// composed is one node that several servers make up. The names of its locks are in parts: one for
// each master of a Cluster, else only one.
type composed interface {
	urls() []string   // the node's addresses, the same for all clients
	labels() []string // the servers' names in the report
	kind() string     // which servers they are, for the report

	// ready blocks until all servers are in order and the fault can begin, or until ctx is done.
	ready(ctx context.Context, it item) error
	// begin has the fault take effect. It returns the indexes of the servers that have the fault, and
	// the function that ends it. If begin fails half-way, undo ends what had begun, unless it is nil.
	begin(ctx context.Context, it item) (hit []int, undo func() error, err error)
	// run identifies the process that is the master of a part now. It changes when another server is
	// promoted or the master is started again. It is "" while no master is known.
	run(ctx context.Context, part int) string
	// look looks for the keys of names on the servers that should have them. A server that does not
	// answer is left out.
	look(ctx context.Context, names []string) []history.Look
	// settle says that a process is a client of a side.
	settle(pid int, s side)
	close() error
}

// partOf returns the part of the node, from 1, that the name with index i is to be in.
func (o *Options) partOf(i int) int { return 1 + i%o.Topology.parts() }

// parts returns the part of each name. It returns nil where there are many nodes.
func (o *Options) parts() map[string]int {
	if !o.Topology.alone() {
		return nil
	}
	parts := map[string]int{}
	for i, name := range o.lockNames() {
		parts[name] = o.partOf(i)
	}
	for i, name := range o.probeNames() {
		parts[name] = o.partOf(i)
	}
	return parts
}

const (
	readyLimit = 12 * time.Second       // how long a fault waits until the node is in order
	watchEvery = 150 * time.Millisecond // how often strike asks for the master during a fault
)

// strike carries out a fault of a composed node. Only one fault of masters happens at a
// time, and only one of Sentinels. If the node is not in order within readyLimit, the fault is left out.
func (t *torturer) strike(ctx context.Context, id int, it item) {
	node := t.ground.node
	turn := t.ground.turns[traits[it.kind].sentinel]
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-turn }()
	if t.unsettles(it.kind) {
		select {
		case t.records <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-t.records }()
	}
	waiting, cancel := context.WithTimeout(ctx, readyLimit)
	err := node.ready(waiting, it)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			say(t.options, "fault %d, %s, left out: %v", id, it.kind, err)
		}
		return
	}
	if time.Since(t.start)+it.for_ > t.options.For-t.tail {
		return // the time after it would be too short to see whether locks can be acquired again
	}
	f := history.Fault{ID: id, Kind: string(it.kind), Part: it.part, Detail: it.detail()}
	before := node.run(ctx, it.part)
	f.Began = worker.Now()
	hit, undo, err := t.beginComposed(ctx, it)
	for _, i := range hit {
		f.Nodes = append(f.Nodes, i+1)
	}
	if it.kind == minority {
		for w := int(it.side); w < t.options.Workers; w += 2 {
			f.Workers = append(f.Workers, w+1)
		}
	}
	changed := int64(0) // when the part last had another master
	look := func() {
		if run := node.run(context.WithoutCancel(ctx), it.part); run != "" && run != before {
			before, changed = run, worker.Now()
		}
	}
	if err == nil {
		for end := time.Now().Add(it.for_); time.Now().Before(end) && wait(ctx, min(watchEvery, time.Until(end))); {
			look()
		}
	}
	if undo != nil {
		err = errors.Join(err, undo())
	}
	look()
	if t.options.Topology.ensemble() {
		// Servers that were started again do not serve at once. The fault ends only when they do.
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverLimit)
		err = errors.Join(err, node.ready(waiting, it))
		cancel()
	}
	f.Ended = worker.Now()
	t.takeOut(&f, it, changed)
	t.note(f, err)
}

// takeOut sets f.Out, until which the node counts as out for the fault, which has ended. changed is when
// the part's master last changed, or 0 if it did not.
func (t *torturer) takeOut(f *history.Fault, it item, changed int64) {
	if it.out > 0 {
		f.Out = f.Ended + int64(settled)
		if it.kind == flush || it.kind == setOne {
			changed = f.Ended // the master is the same, but it has to wait for a quarantine like a new one
		}
		if t.options.Topology.ensemble() {
			f.Out = f.Ended + int64(electionTime) // until clients have connected again
		}
		if changed != 0 {
			f.Out = max(f.Out, changed+int64(quarantine(max(t.options.TTL, it.maxTTL()))))
		}
	}
	if it.kind == fixSlots || it.kind == moveSlot {
		// A master that is given slots gets another configuration epoch. Its quarantine then begins again for
		// all its slots, except for those that were used since the last one.
		f.Part, f.Out = 0, f.Ended+int64(quarantine(t.options.TTL))
	}
}

// beginComposed has a fault take effect. A change of the deployment's MaxTTL is made by a client, in the
// same way in every topology. All else is the node's.
func (t *torturer) beginComposed(ctx context.Context, it item) (hit []int, undo func() error, err error) {
	if it.kind == setOne {
		undo, err = t.set(ctx, it, []string{composedName})
		return nil, undo, err
	}
	return t.ground.node.begin(ctx, it)
}

// countComposed is count for a composed node.
func (t *torturer) countComposed(ctx context.Context) {
	names, keys := map[string]string{}, []string{}
	for name, key := range t.options.keys() {
		names[key], keys = name, append(keys, key)
	}
	looks := t.ground.node.look(ctx, keys)
	for i := range looks {
		looks[i].Name = names[looks[i].Name]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looks = append(t.looks, looks...)
}

// lookBy looks for the keys of names, each on the server that keeper dials for it.
func lookBy(ctx context.Context, keeper func(context.Context, string) (*redistest.Conn, int, error), names []string) (looks []history.Look) {
	for _, name := range names {
		conn, server, err := keeper(ctx, name)
		if err != nil {
			continue
		}
		reply, err := conn.Do("PTTL", name)
		conn.Close()
		if left, ok := reply.(int64); ok && err == nil {
			looks = append(looks, history.Look{
				At: worker.Now(), Node: server + 1, Name: name, Found: left != -2, Left: time.Duration(left) * time.Millisecond,
			})
		}
	}
	return looks
}

// until calls check often until it returns nil. If ctx ends first, until returns the last error of check
// and the cause of ctx.
func until(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		if !wait(ctx, 30*time.Millisecond) {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}
