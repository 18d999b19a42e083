//go:build linux

package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// primitives has the values of --primitive, each with what the workers then choose from at random. Sets come with
// locks of one name, and readers with writers, so that they contend. Shared is there three times so that
// readers hold a lock together.
var primitives = map[string][]worker.Primitive{
	"mutex":   nil,
	"sets":    {worker.Mutex, worker.Set},
	"shared":  {worker.Mutex, worker.Shared, worker.Shared, worker.Shared},
	"permits": {worker.Permits},
	"mixed":   {worker.Mutex, worker.Set, worker.Shared, worker.Shared, worker.Permits},
}

// permits is how many permits each name has.
const permits = 3

// checkPrimitive checks Options.Primitive and fills in its default and what the workers choose from.
func (o *Options) checkPrimitive() error {
	if o.Primitive == "" {
		o.Primitive = "mutex"
	}
	chosen, ok := primitives[o.Primitive]
	switch {
	case !ok:
		return invalid("--primitive is %q: use mutex, sets, shared, permits or mixed", o.Primitive)
	case chosen == nil:
		return nil
	case o.Topology.ensemble():
		return invalid("--primitive is %s, which --engine %s does not have: leave it out", o.Primitive, o.Topology)
	case len(o.WorkerCommand) > 0:
		return invalid("--primitive is %s, which another library's worker does not have: leave it out", o.Primitive)
	case o.Primitive == "sets" && o.Topology == Cluster:
		return invalid("--primitive is sets, and the names of the torture are in several slots of the Cluster: leave it out")
	case o.Primitive == "sets" && o.Names < 2:
		return invalid("--names is %d: use 2 or more, or there are no sets", o.Names)
	}
	if o.Topology == Cluster || o.Names < 2 {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(p worker.Primitive) bool { return p == worker.Set })
	}
	o.primitives = chosen
	return nil
}

// takes reports whether the workers take p.
func (o *Options) takes(p worker.Primitive) bool {
	return slices.Contains(o.primitives, p) || p == worker.Mutex && len(o.primitives) == 0
}

// resources returns all that only one holder, or only readers, may have at a time: names of locks, and
// slots.
func (o *Options) resources() []string {
	if !o.takes(worker.Mutex) {
		return o.slots()
	}
	return append(o.lockNames(), o.slots()...)
}

// slots returns the slots of all names, if the workers take permits.
func (o *Options) slots() (all []string) {
	if !o.takes(worker.Permits) {
		return nil
	}
	for _, name := range o.lockNames() {
		for i := range permits {
			all = append(all, worker.SlotName(name, i))
		}
	}
	return all
}

// keys returns the key that each of the resources has on a node.
func (o *Options) keys() map[string]string {
	keys := map[string]string{}
	for _, name := range o.lockNames() {
		if o.takes(worker.Mutex) {
			keys[name] = name
		}
		for i := range permits {
			if o.takes(worker.Permits) {
				keys[worker.SlotName(name, i)] = slotKey(name, i)
			}
		}
	}
	return keys
}

// Take implements worker.Taker.
func (l locker) Take(ctx context.Context, w worker.Want) (worker.Hold, error) {
	var lock *redlatch.Lock
	var err error
	switch w.Primitive {
	case worker.Set:
		lock, err = l.client.LockAll(ctx, w.Names)
	case worker.Shared:
		lock, err = l.client.RLock(ctx, w.Names[0])
	case worker.Permits:
		lock, err = l.acquire(ctx, w)
	default:
		return l.Lock(ctx, w.Names[0])
	}
	if err != nil {
		return nil, err // not lock: a nil *redlatch.Lock would make a Hold that is not nil
	}
	return lock, nil
}

// Take implements worker.Taker with the bug of the broken lock. A set is taken name by name. A reader only waits
// until there is no writer, and leaves no key that a writer would see.
func (b *broken) Take(ctx context.Context, w worker.Want) (worker.Hold, error) {
	switch w.Primitive {
	case worker.Set:
		set := brokenSet{}
		for _, name := range slices.Sorted(slices.Values(w.Names)) {
			hold, err := b.Lock(ctx, name)
			if err != nil {
				_ = set.Unlock(ctx)
				return nil, err
			}
			set.holds = append(set.holds, hold)
		}
		return set, nil
	case worker.Shared:
		hold, err := b.Lock(ctx, w.Names[0])
		if err == nil {
			_ = hold.Unlock(ctx)
		}
		return hold, err
	case worker.Permits:
		slot := rand.IntN(w.Permits)
		hold, err := b.Lock(ctx, worker.SlotName(w.Names[0], slot))
		return brokenPermit{hold, slot}, err
	}
	return b.Lock(ctx, w.Names[0])
}

// brokenSet is a set of the broken lock. It says that it is held until its first hold ends.
type brokenSet struct{ holds []worker.Hold }

func (s brokenSet) Until() time.Time { return s.holds[0].Until() }
func (s brokenSet) Token() uint64    { return s.holds[len(s.holds)-1].Token() }
func (s brokenSet) Err() error       { return s.holds[0].Err() }

func (s brokenSet) Unlock(ctx context.Context) error {
	for _, hold := range s.holds {
		_ = hold.Unlock(ctx) // it always returns nil
	}
	return nil
}

// brokenPermit is a permit of the broken lock: a lock of one slot.
type brokenPermit struct {
	worker.Hold
	slot int
}

func (p brokenPermit) Slot() int { return p.slot }

// primitivesText lists what the workers of the run take.
func (o *Options) primitivesText() string {
	var all []string
	for _, p := range []worker.Primitive{worker.Mutex, worker.Set, worker.Shared, worker.Permits} {
		if o.takes(p) {
			all = append(all, string(p))
		}
	}
	return strings.Join(all, ", ")
}
