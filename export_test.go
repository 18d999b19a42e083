package redlatch

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
)

// OpenIn is Open with the machine's parts given: its clock, its chance, and the
// network to the node of a name.
func OpenIn(config Config, machine clock.Clock, draw func(below time.Duration) time.Duration, dial func(node string) (driver.Conn, error)) (*Client, error) {
	return open(config, hook.Surroundings{Clock: machine, Draw: draw, Dial: dial})
}

// Batched is the config of a client whose callers are always taken for many.
func Batched(c Config) Config {
	c.batchAbove = -1
	return c
}

// KindOf is what a vote for op amounts to that did not succeed.
func KindOf(op string, nodes []NodeAnswer) error { return newQuorumError(op, "x", nodes).kind }

// HolderID is the value of the lock's keys.
func (l *Lock) HolderID() string { return l.holder.Lease.ID() }
