package goredis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A command for which go-redis has no connection is known not to have been sent; one whose connection broke is not.
func TestUnsent(t *testing.T) {
	t.Parallel()
	server, gone := redistest.New(t), redistest.New(t)
	gone.Kill()
	proxy := redistest.NewProxy(t, server.Addr())
	for name, c := range map[string]struct {
		options redis.Options
		busy    bool // the one connection is
		closed  bool
		sent    bool
		kind    error
	}{
		"no server":           {options: redis.Options{Addr: gone.Addr()}},
		"closed":              {options: redis.Options{Addr: server.Addr()}, closed: true, kind: redis.ErrClosed},
		"too few connections": {options: redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: time.Millisecond}, busy: true, kind: redis.ErrPoolTimeout},
		"no further one":      {options: redis.Options{Addr: server.Addr(), PoolSize: 2, MaxActiveConns: 1}, busy: true, kind: redis.ErrPoolExhausted},
		"no reply":            {options: redis.Options{Addr: proxy.Addr()}, sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.MaxRetries = -1
			client := redis.NewClient(&c.options)
			defer client.Close()
			conn := newListenConn(client)
			defer conn.Close()
			if c.busy {
				one := client.Conn()
				defer one.Close()
				if err := one.Ping(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if c.closed {
				client.Close()
			}
			proxy.OnCommand(func(r redistest.Command) redistest.Action {
				if r.Name() == "SET" {
					return redistest.CutBefore
				}
				return redistest.Pass
			})
			_, err := conn.Do(context.Background(), "SET", "k", "v")
			if err == nil || errors.Is(err, driver.ErrNotSent) == c.sent || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%v", err)
			}
			if c.busy {
				return // a batch has a pool of its own
			}
			_, errs := conn.Batch(context.Background(), []string{"SET", "k", "v"})
			if errs[0] == nil || errors.Is(errs[0], driver.ErrNotSent) == c.sent {
				t.Errorf("in a batch: %v", errs[0])
			}
		})
	}
}
