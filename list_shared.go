package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/internal/redisconn"
)

// Readers returns the readers who have the lock name, in the order of their coming. It waits as Waiters does,
// and its errors are those of List.
func Readers(ctx context.Context, config Config, name string) ([]Reader, error) {
	all, _, err := browse(ctx, config, false, func(ctx context.Context, config Config, conn *redisconn.Conn) (map[listed]found, error) {
		locks := make(map[listed]found)
		return locks, lookAt(ctx, conn, []place{placeOf(config, name)}, locks)
	})
	for _, lock := range all {
		return lock.Readers, err
	}
	return nil, err
}
