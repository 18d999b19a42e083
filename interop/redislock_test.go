package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"

	"github.com/redlatch/redlatch/internal/redistest"
)

type redislockPeer struct {
	client *redislock.Client
	lock   *redislock.Lock
}

func openRedislock(t *testing.T, nodes []*redistest.Server) peer {
	return &redislockPeer{client: redislock.New(goRedis(t, nodes[0]))}
}

func (p *redislockPeer) acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	lock, err := p.client.Obtain(ctx, name, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	p.lock = lock
	return err == nil, err
}

func (p *redislockPeer) release(ctx context.Context) (bool, error) {
	err := p.lock.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false, nil
	}
	return err == nil, err
}
