package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redistest"
)

type redsyncPeer struct {
	redsync *redsync.Redsync
	mutex   *redsync.Mutex
}

func openRedsync(t *testing.T, nodes []*redistest.Server) peer {
	pools := make([]redsyncredis.Pool, len(nodes))
	for i, s := range nodes {
		pools[i] = goredis.NewPool(goRedis(t, s))
	}
	return &redsyncPeer{redsync: redsync.New(pools...)}
}

func goRedis(t *testing.T, s *redistest.Server) *goredislib.Client {
	client := goredislib.NewClient(&goredislib.Options{Addr: s.Addr()})
	t.Cleanup(func() { client.Close() })
	return client
}

func (p *redsyncPeer) acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	// The default gives a node a twentieth of the TTL, little on a busy machine.
	p.mutex = p.redsync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5))
	err := p.mutex.TryLockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
		return false, nil
	}
	if _, taken := errors.AsType[*redsync.ErrNodeTaken](err); taken || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redsync.ErrFailed) {
		return false, nil // or a node was late
	}
	return err == nil, err
}

func (p *redsyncPeer) release(ctx context.Context) (bool, error) {
	ok, err := p.mutex.UnlockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		err = nil
	}
	return ok, err
}
