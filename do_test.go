package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
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
