package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// OpenIn is Open with the machine's parts given: its clock, its chance, and the
// network to the node of a name.
func OpenIn(config Config, machine clock.Clock, draw func(below time.Duration) time.Duration, dial func(node string) (driver.Conn, error)) (*Client, error) {
	c, err := open(config, machine, func(e endpoint) (driver.Conn, error) { return dial(e.name) })
	if err == nil {
		c.draw = draw // no call was made yet that draws
	}
	return c, err
}

// Batched is the config of a client whose callers are always taken for many.
func Batched(c Config) Config {
	c.batchAbove = -1
	return c
}

// KindOf is what a vote for op amounts to that did not succeed.
func KindOf(op string, nodes []NodeAnswer) error { return newQuorumError(op, "x", nodes).kind }

// LockOf is the lock whose context ctx is.
func LockOf(ctx context.Context) *Lock { return ctx.(*lockContext).lock }

// HolderID is the value of the lock's keys.
func (l *Lock) HolderID() string { return l.lease.ID() }

// End is when the lock counts as lost.
func (l *Lock) End() clock.Instant { return l.until().Add(-l.call.settings.guard) }

// Deadline is the end of the validity on both clocks.
func (l *Lock) Deadline() clock.Instant { return l.until() }
