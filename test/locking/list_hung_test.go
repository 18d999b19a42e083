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
