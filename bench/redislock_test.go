package bench

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	goredislib "github.com/redis/go-redis/v9"
)

// redislockLocker is redislock as its README has it. It knows one node.
type redislockLocker struct {
	client  *goredislib.Client
	locker  *redislock.Client
	options *redislock.Options
}

func openRedislock(addrs []string) (locker, error) {
	client := goredislib.NewClient(&goredislib.Options{Network: "tcp", Addr: addrs[0]})
	return &redislockLocker{client, redislock.New(client), nil}, nil
}

// openRedislockWaiting retries as the example of its README does.
func openRedislockWaiting(addrs []string) (locker, error) {
	client := goredislib.NewClient(&goredislib.Options{Network: "tcp", Addr: addrs[0]})
	retry := redislock.LinearBackoff(100 * time.Millisecond)
	return &redislockLocker{client, redislock.New(client), &redislock.Options{RetryStrategy: retry}}, nil
}

func (l *redislockLocker) close() { l.client.Close() }

func (l *redislockLocker) pair(ctx context.Context, name string) error {
	lock, err := l.locker.Obtain(ctx, name, ttl, l.options)
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}

func (l *redislockLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lock, err := l.locker.Obtain(ctx, name, ttl, l.options)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}
