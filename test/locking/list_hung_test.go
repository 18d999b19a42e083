package locking

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A node hangs as soon as it is connected to. List waits for it until its ctx is done, and for a second at most.
func TestListOfANodeThatHangs(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, locktest.Shared(t, 1)[0].Addr())
	proxy.OnCommand(func(c redistest.Command) redistest.Action {
		if c.Name() == "INFO" {
			return redistest.DropReply
		}
		return redistest.Pass
	})
	for patience, most := range map[time.Duration]time.Duration{200 * time.Millisecond: time.Second, time.Minute: 1800 * time.Millisecond} {
		locktest.Soon(t, fmt.Sprintf("with a ctx of %v", patience), most, func(int) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			start := time.Now()
			_, _, err := redlatch.List(ctx, locktest.Config(proxy.URL()), "*")
			took := time.Since(start)
			if !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Fatal(err)
			}
			return took
		})
	}
}

// Nodes hang while they are being connected to. A ctx that ends then ends a listing, too.
func TestListOfNodesThatHangAtConnecting(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	for _, s := range servers {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	config, cluster := locktest.Config(redistest.URLs(servers)...), locktest.Config(servers[0].URL()+"?cluster")
	for what, list := range map[string]func(context.Context) error{
		"List":                 func(ctx context.Context) error { _, _, err := redlatch.List(ctx, config, "*"); return err },
		"Waiters":              func(ctx context.Context) error { _, err := redlatch.Waiters(ctx, config, "a"); return err },
		"Waiters of a Cluster": func(ctx context.Context) error { _, err := redlatch.Waiters(ctx, cluster, "a"); return err },
	} {
		late := 0
		for n := range 60 {
			patience := time.Duration(n%20+1) * time.Millisecond / 4
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			start := time.Now()
			err := list(ctx)
			cancel()
			if !errors.Is(err, redlatch.ErrNoQuorum) {
				t.Fatal(err)
			}
			if time.Since(start) > patience+700*time.Millisecond {
				late++
			}
			if late == 4 { // a busy machine may be late, but not so often
				t.Fatalf("%s takes long after its ctx: %d of %d times", what, late, n+1)
			}
		}
	}
}
