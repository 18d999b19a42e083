package worker

import (
	"context"
	"fmt"
	"slices"
)

// Primitive is a sort of lock.
type Primitive string

// The primitives.
const (
	Mutex   Primitive = "mutex"   // one name
	Set     Primitive = "set"     // several names, all or none
	Shared  Primitive = "shared"  // one name, by readers
	Permits Primitive = "permits" // one of several slots of a name
)

// Taker is a Locker that has more than locks of one name.
type Taker interface {
	Locker
	// Take acquires what w says, as Lock does.
	Take(ctx context.Context, w Want) (Hold, error)
}

// Want is what a caller wants: a set has several Names.
type Want struct {
	Primitive
	Names   []string
	Permits int
}

// Slotted is a Hold of a permit.
type Slotted interface {
	// Slot is which of the permits it is, from 0.
	Slot() int
}

// SlotName names what one permit is: of each slot there is one holder, with tokens of its own.
func SlotName(name string, slot int) string { return fmt.Sprintf("%s#%d", name, slot) }

// resources are what of it may be held: of permits all slots, one of which it is to be.
func (w Want) resources() []string {
	if w.Primitive != Permits {
		return w.Names
	}
	slots := make([]string, w.Permits)
	for i := range slots {
		slots[i] = SlotName(w.Names[0], i)
	}
	return slots
}

// held are the names of what the hold is of.
func (w Want) held(hold Hold) []string {
	slotted, ok := hold.(Slotted)
	if w.Primitive != Permits || !ok {
		return w.Names
	}
	return []string{SlotName(w.Names[0], slotted.Slot())}
}

// choose draws what to take next.
func (c *caller) choose() Want {
	w := Want{Primitive: Mutex, Names: []string{c.Names[c.rand.IntN(len(c.Names))]}, Permits: c.Permits}
	if c.Probe {
		w.Names[0] = c.Names[(c.number-1)%len(c.Names)]
	}
	if _, more := c.locker.(Taker); !more || len(c.Primitives) == 0 || c.Probe {
		return w
	}
	w.Primitive = c.Primitives[c.rand.IntN(len(c.Primitives))]
	if w.Primitive == Set {
		// In any order, which must not matter.
		names := slices.Clone(c.Names)
		c.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		w.Names = names[:2+c.rand.IntN(len(names)-1)]
	}
	return w
}

// take acquires it.
func (c *caller) take(ctx context.Context, w Want) (Hold, error) {
	if taker, more := c.locker.(Taker); more && w.Primitive != Mutex {
		return taker.Take(ctx, w)
	}
	return c.locker.Lock(ctx, w.Names[0])
}
