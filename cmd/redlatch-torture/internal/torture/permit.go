//go:build linux

package torture

import (
	"context"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// acquire acquires a permit.
func (l locker) acquire(ctx context.Context, w worker.Want) (*redlatch.Lock, error) {
	return l.client.Acquire(ctx, w.Names[0], w.Permits)
}

// slotKey returns the key of one slot of a name.
func slotKey(name string, slot int) string { return node.SlotKey(node.PermitsKey(name), slot) }

// permitKeys returns the keys of the permits of a name, except for those of the slots.
func permitKeys(name string) []string { return node.SideKeys(node.PermitsKey(name)) }
