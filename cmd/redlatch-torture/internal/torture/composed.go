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

// composedName is what clients call the one node.
const composedName = "n1"

// composed is one node that several servers make up.
type composed interface {
	urls() []string // as all clients know it
	labels() []string
	kind() string // of the servers

	// ready blocks until the fault can be done to a node in order, or ctx is done.
	ready(ctx context.Context, it item) error
	// begin has the fault take effect. It returns the servers that it befalls, from
	// 0, and what ends it, also when it fails half-way.
	begin(ctx context.Context, it item) (hit []int, undo func() error, err error)
	// run names the present run of the master of a part: another name is another
	// master, or the same one started again. It is "" while that is open.
	run(ctx context.Context, part int) string
	// look looks for the keys of names where they would be. What cannot be reached is not judged.
	look(ctx context.Context, names []string) []history.Look
	// settle says that a process belongs to the clients of a side.
	settle(pid int, s side)
	close() error
}

// partOf tells the part of the node that a name is in, from 1.
func (o *Options) partOf(i int) int { return 1 + i%o.Topology.parts() }

// parts are those of all names, nil where there are many nodes.
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

// How long a node is waited for that is to be in order before a fault, and how
// often it is looked at during one.
const (
	readyLimit = 12 * time.Second
	watchEvery = 150 * time.Millisecond
)

// strike carries out a fault of a composed node. Those of masters come one at a
// time, those of Sentinels too, and what is not in order in time is left alone.
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
		return // too late for what is to be seen after it
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
		// Servers that were started again do not serve at once: it is not over before.
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverLimit)
		err = errors.Join(err, node.ready(waiting, it))
		cancel()
	}
	f.Ended = worker.Now()
	t.takeOut(&f, it, changed)
	t.note(f, err)
}

// takeOut notes until when the fault, which has ended, keeps the node out; changed is when its
// part last had another master, 0 for never.
func (t *torturer) takeOut(f *history.Fault, it item, changed int64) {
	if it.out > 0 {
		f.Out = f.Ended + int64(settled)
		if it.kind == flush || it.kind == setOne {
			changed = f.Ended // not to another master, but to one that has to wait as if it were
		}
		if t.options.Topology.ensemble() {
			f.Out = f.Ended + int64(electionTime) // clients connect anew
		}
		if changed != 0 {
			f.Out = max(f.Out, changed+int64(quarantine(max(t.options.TTL, it.maxTTL()))))
		}
	}
	if it.kind == fixSlots || it.kind == moveSlot {
		// Masters that slots come to have another configuration epoch, and wait anew for those
		// that they had waited for and that nobody had used since.
		f.Part, f.Out = 0, f.Ended+int64(quarantine(t.options.TTL))
	}
}

// beginComposed has a fault take effect. What has to do with clients is the same wherever the
// node is.
func (t *torturer) beginComposed(ctx context.Context, it item) (hit []int, undo func() error, err error) {
	if it.kind == setOne {
		undo, err = t.set(ctx, it, []string{composedName})
		return nil, undo, err
	}
	return t.ground.node.begin(ctx, it)
}

// countComposed looks for the locks' keys.
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

// lookBy looks for the keys of names at the servers that keep them.
func lookBy(ctx context.Context, keeper func(context.Context, string) (*redistest.Conn, int, error), names []string) (looks []history.Look) {
	for _, name := range names {
		conn, server, err := keeper(ctx, name)
		if err != nil {
			continue
		}
		at := worker.Now()
		reply, err := conn.Do("PTTL", name)
		conn.Close()
		if left, ok := reply.(int64); ok && err == nil {
			looks = append(looks, history.Look{
				At: at, Node: server + 1, Name: name, Found: left != -2, Left: time.Duration(left) * time.Millisecond,
			})
		}
	}
	return looks
}

// until asks check often until it returns nil, or ctx is done: then its last error
// is returned.
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
