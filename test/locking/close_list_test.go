package locking

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// begun is a ctx that tells when it is first asked whether it is done.
type begun struct {
	context.Context
	asked func()
}

func (c begun) Done() <-chan struct{} {
	c.asked()
	return c.Context.Done()
}

// Close ends a List, Waiters or Permits that waits for an answer. A client that is closed lists nothing.
func TestCloseWhileListing(t *testing.T) {
	t.Parallel()
	proxies := redistest.Proxies(t, locktest.Shared(t, 1))
	for what, list := range map[string]func(context.Context, *redlatch.Client) error{
		"List":    func(ctx context.Context, c *redlatch.Client) error { _, _, err := c.List(ctx, "*"); return err },
		"Waiters": func(ctx context.Context, c *redlatch.Client) error { _, err := c.Waiters(ctx, "x"); return err },
		"Permits": func(ctx context.Context, c *redlatch.Client) error { _, _, err := c.Permits(ctx, "x"); return err },
	} {
		client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
		proxies[0].HoldBack(redistest.Replies, true)
		asked := make(chan struct{})
		out := make(chan error, 1)
		go func() { out <- list(begun{t.Context(), sync.OnceFunc(func() { close(asked) })}, client) }()
		<-asked
		if err := client.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
		if err := <-out; !errors.Is(err, redlatch.ErrClosed) {
			t.Errorf("%s while Close: %v", what, err)
		}
		proxies[0].HoldBack(redistest.Replies, false)
		if err := list(t.Context(), client); !errors.Is(err, redlatch.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}
