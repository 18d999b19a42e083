package bench

import (
	"context"

	"github.com/bsm/redislock"
	goredislib "github.com/redis/go-redis/v9"
)

// redislockLocker is redislock as its README has it. It knows one node.
type redislockLocker struct {
	client *goredislib.Client
	locker *redislock.Client
}

func openRedislock(addrs []string) (locker, error) {
	client := goredislib.NewClient(&goredislib.Options{Network: "tcp", Addr: addrs[0]})
	return &redislockLocker{client, redislock.New(client)}, nil
}

func (l *redislockLocker) close() { l.client.Close() }

func (l *redislockLocker) pair(ctx context.Context, name string) error {
	lock, err := l.locker.Obtain(ctx, name, ttl, nil)
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}
