package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/memory"
	"github.com/redlatch/redlatch/redlatchtest"
)

// onGrant is an Observer that does something before a call learns that it has its lock.
type onGrant func()

func (f onGrant) Observe(_ context.Context, event redlatch.Event) {
	if _, ok := event.(redlatch.LockAcquired); ok {
		f()
	}
}

// Do does not begin its work under a lock that is over by then.
func TestDoUnderALockThatIsOver(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"closed": redlatch.ErrReleased, "ran out": redlatch.ErrLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var client *redlatchtest.Client
				client = redlatchtest.New(t, redlatch.Config{TTL: time.Second, Observer: onGrant(func() {
					if want == redlatch.ErrLost {
						time.Sleep(time.Second)
						return
					}
					go client.Close()
					synctest.Wait() // until it waits for the call
				})})
				err := client.TryDo(t.Context(), "job", func(ctx context.Context) error {
					t.Errorf("it began: %v", context.Cause(ctx))
					return nil
				})
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		})
	}
}

// What fn returned is returned as it is where nothing is to be added to it.
func TestErrorOfFn(t *testing.T) {
	t.Parallel()
	client := redlatchtest.New(t, redlatch.Config{})
	of := errors.New("of fn")
	fn := func(context.Context) error { return of }
	for name, err := range map[string]error{
		"Do":       client.Do(t.Context(), "name", fn),
		"Campaign": client.Campaign(t.Context(), "name", fn),
	} {
		if err != of {
			t.Errorf("%s: %T %[2]v", name, err)
		}
	}
}

// That the lock was lost is said once, also where fn returns the cause of its ctx.
func TestLossIsSaidOnce(t *testing.T) {
	t.Parallel()
	client := redlatchtest.New(t, redlatch.Config{})
	of := errors.New("of fn")
	err := client.Do(t.Context(), "name", func(ctx context.Context) error {
		client.Lose("name")
		return fmt.Errorf("%w: %w", of, context.Cause(ctx))
	})
	if !errors.Is(err, of) || !errors.Is(err, redlatch.ErrLost) || strings.Count(err.Error(), redlatch.ErrLost.Error()) != 1 {
		t.Errorf("%q", err)
	}
}

// closing is a clock that closes a client as soon as it is read while the client holds a lock, and goes on when Close waits.
type closing struct {
	virtual
	client *redlatch.Client
	begun  atomic.Bool
	closed chan error
}

func (c *closing) Now() clock.Instant {
	if c.client != nil && c.client.Stats().Held > 0 && c.begun.CompareAndSwap(false, true) {
		go func() { c.closed <- c.client.Close() }()
		synctest.Wait()
	}
	return c.virtual.Now()
}

// A campaign whose client is closed when it has won, and before its work has begun, ends that work.
func TestCampaignThatIsClosedAsItsWorkBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		machine := &closing{virtual: virtual{clock.System, time.Now()}, closed: make(chan error, 1)}
		client := locktest.OpenIn(t, redlatch.Config{}, hook.Surroundings{
			Clock: machine, Nodes: []hook.Node{{Name: "a", Dial: memory.New(time.Now).Link().Dial}},
		})
		time.Sleep(time.Second) // the node is known
		machine.client = client
		err := client.Campaign(t.Context(), "name", func(ctx context.Context) error {
			if cause := context.Cause(ctx); !errors.Is(cause, redlatch.ErrClosed) {
				t.Errorf("its ctx goes on: %v", cause)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if err := <-machine.closed; err != nil {
			t.Error(err)
		}
	})
}

// Campaign says once that its client was closed before it has learnt that it leads.
func TestCampaignThatIsClosedBeforeItsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var client *redlatchtest.Client
		client = redlatchtest.New(t, redlatch.Config{Observer: onGrant(func() {
			go client.Close()
			synctest.Wait() // until it waits for the call
		})})
		err := client.Campaign(t.Context(), "name", func(context.Context) error {
			t.Error("it began")
			return nil
		})
		if !errors.Is(err, redlatch.ErrReleased) || strings.Count(err.Error(), redlatch.ErrReleased.Error()) != 1 {
			t.Errorf("%q", err)
		}
	})
}
