package oneshot_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// What two nodes have said is not kept back until the third, which hangs, would have had its time to answer.
func TestOneShotIsAnsweredBesideANodeThatHangs(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	for _, server := range nodes {
		locktest.Do(t, server, "SET", t.Name(), "a", "PX", "60000")
	}
	for op, call := range map[string]func(c caller, ctx context.Context) (right bool, err error){
		"query": func(c caller, ctx context.Context) (bool, error) {
			id, _, err := c.Query(ctx, t.Name())
			return id == "a", err
		},
		"release of another's": func(c caller, ctx context.Context) (bool, error) {
			ok, err := c.Release(ctx, t.Name(), "b")
			return !ok, err
		},
	} {
		locktest.Await(t, op+" is answered soon", func() bool { // a busy machine may be slow
			client := newCaller(t, c, oneshot.CommandsAuto)
			inspect(t, client, t.Name())
			proxies[2].BlackHole(redistest.Both, true)
			defer proxies[2].Cut()
			defer proxies[2].BlackHole(redistest.Both, false)
			start := time.Now()
			right, err := call(client, t.Context())
			took := time.Since(start)
			if err == nil && !right {
				t.Fatalf("%s is answered otherwise", op)
			}
			return err == nil && took < 2*c.NodeTimeout // it has four of them to answer
		})
	}
}

// Take and Extend wait for NodeTimeout, during which the validity runs, and no longer.
func TestTakeAtANodeThatHangs(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, locktest.Shared(t, 1)[0].Addr())
	c := locktest.Config(proxy.URL())
	for op, call := range map[string]func(c caller, ctx context.Context) (bool, error){
		"take":   func(c caller, ctx context.Context) (bool, error) { return c.Take(ctx, t.Name(), "x", locktest.TTL) },
		"extend": func(c caller, ctx context.Context) (bool, error) { return c.Extend(ctx, t.Name(), "x", locktest.TTL) },
	} {
		locktest.Await(t, op+" ends soon", func() bool { // a busy machine may be slow
			client := newCaller(t, c, oneshot.CommandsAuto)
			inspect(t, client, t.Name())
			proxy.BlackHole(redistest.Both, true)
			defer proxy.Cut()
			defer proxy.BlackHole(redistest.Both, false)
			start := time.Now()
			if ok, err := call(client, t.Context()); ok || !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Fatalf("%s: %t, %v", op, ok, err)
			}
			took := time.Since(start)
			return took >= c.NodeTimeout && took < 2*c.NodeTimeout
		})
	}
}

// A transaction whose answer does not come in time was cancelled by nobody, and its error does not say so.
func TestErrorOfALateTransaction(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"WATCH", "EXEC"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			server := locktest.Shared(t, 1)[0]
			proxy := redistest.NewProxy(t, server.Addr())
			c := locktest.Config(proxy.URL())
			c.NodeTimeout = 100 * time.Millisecond
			client := newCaller(t, c, oneshot.CommandsWatch)
			locktest.Do(t, server, "SET", t.Name(), "x", "PX", "60000")
			proxy.OnCommand(func(c redistest.Command) redistest.Action {
				if c.Name() == late {
					return redistest.DropReply
				}
				return redistest.Pass
			})
			_, extending := client.Extend(t.Context(), t.Name(), "x", locktest.TTL)
			_, releasing := client.Release(t.Context(), t.Name(), "x")
			for what, err := range map[string]error{"extend": extending, "release": releasing} {
				if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// Release and Query have the time for several round trips, each of which takes nearly NodeTimeout.
func TestReleaseByAWayOfManyRoundTrips(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	proxy := redistest.NewProxy(t, server.Addr())
	c := locktest.Config(proxy.URL())
	client := newCaller(t, c, oneshot.CommandsWatch)
	locktest.Await(t, "it is released, and queried before", func() bool { // a busy machine may be slow
		_, err := client.Release(t.Context(), t.Name(), "x") // there is a connection for it
		locktest.Do(t, server, "SET", t.Name(), "x", "PX", "60000")
		proxy.Delay(redistest.Replies, 2*c.NodeTimeout/3, 0)
		defer proxy.Delay(redistest.Replies, 0, 0)
		id, _, err2 := client.Query(t.Context(), t.Name())
		ok, err3 := client.Release(t.Context(), t.Name(), "x")
		return errors.Join(err, err2, err3) == nil && id == "x" && ok
	})
}
