package redlatch

import "context"

// Readers returns the readers who have the lock name, in the order of their coming, also in a Cluster. It
// waits as Waiters does, and its errors are those of List.
func Readers(ctx context.Context, config Config, name string) ([]Reader, error) {
	lock, err := lookUp(ctx, config, name)
	return lock.Readers, err
}
