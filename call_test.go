package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A call without a place in the queue rests for no longer than the lock in its way runs, give or take the shortest pause.
func TestRestUntilTheLockEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		other := client.Peer(redlatch.Config{})
		for range 20 {
			_, err := client.TryLock(t.Context(), "name", redlatch.WithTTL(2*time.Second), redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			next, err := other.Lock(t.Context(), "name", redlatch.WithoutQueue())
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 2*time.Second+20*time.Millisecond {
				t.Errorf("it had the lock after %v", took)
			}
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A call without a place in the queue ends at once where its ctx ends, or the client is closed, while it rests.
func TestRestEndsWithTheCall(t *testing.T) {
	t.Parallel()
	for want, end := range map[error]func(*redlatchtest.Client, context.CancelFunc){
		context.Canceled:   func(_ *redlatchtest.Client, cancel context.CancelFunc) { cancel() },
		redlatch.ErrClosed: func(client *redlatchtest.Client, _ context.CancelFunc) { _ = client.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			client := redlatchtest.New(t, redlatch.Config{})
			if _, err := client.Peer(redlatch.Config{}).TryLock(t.Context(), "name"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := make(chan error, 1)
			go func() {
				_, err := client.Lock(ctx, "name", redlatch.WithoutQueue())
				got <- err
			}()
			time.Sleep(10 * time.Second)
			start := time.Now()
			end(client, cancel)
			if err := <-got; !errors.Is(err, want) || !errors.Is(err, redlatch.ErrHeld) {
				t.Error(err)
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("%v: it ends after %v", want, took)
			}
		})
	}
}

// A call whose ctx is done makes no try.
func TestNoTryAfterTheEndOfCtx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := client.Stats().Tries
		_, tried := client.TryLock(ctx, "name")
		_, waited := client.Lock(ctx, "name")
		if !errors.Is(tried, context.Canceled) || !errors.Is(waited, context.Canceled) {
			t.Errorf("%v, %v", tried, waited)
		}
		if tries := client.Stats().Tries - before; tries > 0 {
			t.Errorf("%d tries", tries)
		}
	})
}

// refusing is a connection on which all votes are refused.
type refusing struct{ driver.Conn }

func (c refusing) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if args[0] == script.Acquire {
		return driver.Reply{}, &driver.ServerError{Text: "NOPERM no"}
	}
	return c.Conn.EvalSHA(ctx, sha, keys, args)
}

// A call whose attempt the nodes refuse says so at once: waiting does not cure it.
func TestRefusedCallDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := memory.New(time.Now)
		client := locktest.OpenIn(t, redlatch.Config{}, hook.Surroundings{
			Clock: clock.Awake(), Nodes: []hook.Node{{Name: "memory", Dial: func() driver.Conn { return refusing{n.Link().Dial()} }}},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := client.Lock(ctx, "name"); !errors.Is(err, redlatch.ErrRefused) || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
