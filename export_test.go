package redlatch

import (
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// OpenIn is Open with the machine's parts given: its clock, and the network to
// the node of a name.
func OpenIn(config Config, machine clock.Clock, dial func(node string) (driver.Conn, error)) (*Client, error) {
	return open(config, machine, func(e endpoint) (driver.Conn, error) { return dial(e.name) })
}

// Deadline is the end of the validity on both clocks.
func (l *Lock) Deadline() clock.Instant { return l.hold.Until() }
