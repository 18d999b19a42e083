package redlatch

import (
	"context"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/script"
)

// Permits returns the permits of name that are held, in the order of their slots, and one answer for
// each node, as List does for all names, also in a Cluster. It asks for the keys of the 256 slots that there can be, in
// one round, and waits as Waiters does. Its errors are those of List.
func Permits(ctx context.Context, config Config, name string) ([]Listed, []NodeAnswer, error) {
	return browse(ctx, config, false, func(ctx context.Context, config Config, conn driver.Batcher) (map[listed]found, error) {
		queue := node.PermitsKey(strings.Replace(config.KeyTemplate, nameMark, name, 1))
		places, locks := make([]place, script.MaxSlots), make(map[listed]found)
		for slot := range places {
			places[slot] = permitPlace(name, queue, slot)
		}
		if err := lookAt(ctx, conn, places, locks); err != nil {
			return nil, err
		}
		for one, found := range locks {
			if found.holder == "" { // it has the queue of all
				delete(locks, one)
			}
		}
		return locks, nil
	})
}
