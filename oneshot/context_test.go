package oneshot_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// waitedFor is a context that is over once it has been waited for.
type waitedFor struct {
	context.Context
	waited atomic.Bool
}

func (c *waitedFor) Done() <-chan struct{} {
	c.waited.Store(true)
	return c.Context.Done()
}

func (c *waitedFor) Err() error {
	if c.waited.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// A call whose ctx ends when it has been granted says so: otherwise the lock would be left with nobody.
func TestOneShotIsGrantedAtTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	client := newCaller(t, locktest.Config(locktest.Shared(t, 1)[0].URL()), oneshot.CommandsAuto)
	for op, call := range map[string]func(ctx context.Context, name string) (bool, error){
		"take": func(ctx context.Context, name string) (bool, error) { return client.Take(ctx, name, "y", locktest.TTL) },
		"extend": func(ctx context.Context, name string) (bool, error) {
			return client.Extend(ctx, name, "x", locktest.TTL)
		},
		"release": func(ctx context.Context, name string) (bool, error) { return client.Release(ctx, name, "x") },
	} {
		tries := 0
		locktest.Await(t, op+" is granted", func() bool { // at once, unless a busy machine's node is late
			tries++
			name := fmt.Sprint(t.Name(), "/", op, tries)
			if op != "take" {
				_, _ = client.Take(t.Context(), name, "x", locktest.TTL)
			}
			ctx := &waitedFor{Context: t.Context()}
			ok, err := call(ctx, name)
			return ok && err == nil && ctx.Err() != nil
		})
	}
}

// A call that most nodes refuse does not wait for one that hangs.
func TestOneShotIsRefusedBesideANodeThatHangs(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxy := redistest.NewProxy(t, nodes[2].Addr())
	c := locktest.Config(nodes[0].URL(), nodes[1].URL(), proxy.URL())
	for _, server := range nodes[:2] {
		locktest.Do(t, server, "RPUSH", t.Name(), "x")
	}
	locktest.Await(t, "it is refused without the third", func() bool { // a busy machine's nodes may be late, too
		client := newCaller(t, c, oneshot.CommandsAuto)
		inspect(t, client, t.Name()+"/before")
		proxy.BlackHole(redistest.Both, true)
		defer proxy.Cut()
		defer proxy.BlackHole(redistest.Both, false)
		_, err := client.Take(t.Context(), t.Name(), "x", locktest.TTL)
		return errors.Is(err, redlatch.ErrRefused) && locktest.VerdictOf(t, err, 2).Err == nil
	})
}

// A take whose ctx ends while the node's answer is on its way is undone when that comes. An extension right after it
// does not say that the lock is held, only for the undoing to delete it.
func TestExtendAfterTheContextOfATake(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		name := t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		client := s.open(t)
		locktest.Await(t, "it is connected", func() bool {
			_, err := client.Extend(t.Context(), name+"/before", "x", locktest.TTL)
			return err == nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		var struck atomic.Bool
		s.proxies[0].OnCommand(func(c redistest.Command) redistest.Action {
			if set, _ := locktest.StepOf(c); (set == "acquire" || c.Name() == "SET") && !struck.Swap(true) {
				cancel()
				<-left
				time.Sleep(10 * time.Millisecond) // an extension would have been sent
			}
			return redistest.Pass
		})
		taken, err := client.Take(ctx, name, "x", locktest.TTL)
		close(left)
		if taken || !errors.Is(err, context.Canceled) {
			t.Fatalf("take: %t, %v", taken, err)
		}
		extended, err := client.Extend(t.Context(), name, "x", locktest.TTL)
		if err := client.locks.Close(); err != nil { // it waits for what is undone
			t.Error(err)
		}
		if value := locktest.Value(t, s.nodes[0], name); extended && value != "x" {
			t.Errorf("extended: %t, %v; then the key is %q", extended, err, value)
		}
	})
}
