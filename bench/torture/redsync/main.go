// Redsync is a worker of `redlatch-torture run` that locks with redsync.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/torture/worker"
)

func main() {
	if err := worker.Work(os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// locker is redsync as its README has it, one go-redis client a node, with the
// torture's TTL and all else at its default.
type locker struct {
	redsync *redsync.Redsync
	clients []*goredislib.Client
	ttl     time.Duration
}

func open(a worker.Assignment) (worker.Locker, error) {
	l := &locker{ttl: a.TTL()}
	var pools []redsyncredis.Pool
	for _, raw := range a.Nodes {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, err
		}
		client := goredislib.NewClient(&goredislib.Options{Addr: u.Host})
		l.clients = append(l.clients, client)
		pools = append(pools, goredis.NewPool(client))
	}
	l.redsync = redsync.New(pools...)
	return l, nil
}

func (l *locker) Close() error {
	var errs []error
	for _, c := range l.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Lock makes another of redsync's rounds of 32 tries as long as ctx lasts.
func (l *locker) Lock(ctx context.Context, name string) (worker.Hold, error) {
	for {
		m := l.redsync.NewMutex(name, redsync.WithExpiry(l.ttl))
		err := m.LockContext(ctx)
		if err == nil {
			return hold{m}, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

type hold struct{ *redsync.Mutex }

func (hold) Token() uint64 { return 0 }

var errOver = errors.New("its validity ran out")

func (h hold) Err() error {
	if time.Now().Before(h.Until()) {
		return nil
	}
	return errOver
}

func (h hold) Extend(ctx context.Context) error {
	ok, err := h.ExtendContext(ctx)
	if err == nil && !ok {
		err = errOver
	}
	return err
}

func (h hold) Unlock(ctx context.Context) error {
	ok, err := h.UnlockContext(ctx)
	if err == nil && !ok {
		err = errOver
	}
	return err
}
