package locking

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// stopping is a clock that stops whoever next reads it, when it was told to.
type stopping struct {
	clock.Clock
	stop          atomic.Bool
	stopped, goOn chan struct{}
}

func (c *stopping) Now() clock.Instant {
	if c.stop.CompareAndSwap(true, false) {
		close(c.stopped)
		<-c.goOn
	}
	return c.Clock.Now()
}

func (c *stopping) AfterFunc(time.Duration, func()) clock.Timer { return neverFires{} }

// Close has begun and is about to release a lock when its holder does. It waits for that
// as for any call.
func TestCloseWhileUnlocking(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			of := make(map[string]*redistest.Proxy)
			for i, p := range proxies {
				of[fmt.Sprint("n", i)] = p
			}
			machine := &stopping{Clock: clock.System, stopped: make(chan struct{}), goOn: make(chan struct{})}
			draw := func(below time.Duration) time.Duration { return below / 2 }
			client := locktest.OpenIn(t, locktest.Config(locktest.ProxyURLs(proxies)...), hook.Surroundings{Clock: machine, Draw: draw, Dial: func(node string) (driver.Conn, error) {
				return connTo(of[node].URL())
			}})
			lock := locktest.TryLock(t, client, t.Name())
			locktest.AwaitOn(t, lock, nodes...)

			machine.stop.Store(true)
			closed, unlocked := make(chan error, 1), make(chan error, 1)
			go func() { closed <- client.Close() }()
			<-machine.stopped
			for _, p := range proxies {
				p.Delay(redistest.Requests, 100*time.Millisecond, 0)
			}
			go func() { unlocked <- lock.Unlock(context.Background()) }()
			locktest.Await(t, "the holder releases it", func() bool { return client.Stats().Held == 0 })
			close(machine.goOn)
			if err := <-closed; err != nil {
				t.Errorf("close: %v", err)
			}
			for _, s := range nodes {
				if v := locktest.Value(t, s, t.Name()); v != "" {
					t.Errorf("it is on %s after Close", s.Addr())
				}
			}
			if err := <-unlocked; err != nil {
				t.Errorf("unlock: %v", err)
			}
		})
	}
}
