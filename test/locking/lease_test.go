package locking

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
)

type ctxKey struct{}

// starved is the clock of a machine that no timer fires on, and whose second
// clock can be moved on, as sleep does.
type starved struct {
	clock.Clock
	slept atomic.Int64
}

func (c *starved) Now() clock.Instant {
	now := c.Clock.Now()
	now.Boot += time.Duration(c.slept.Load())
	return now
}

func (c *starved) AfterFunc(time.Duration, func()) clock.Timer { return neverFires{} }

// ticking is starved, with timers that fire.
type ticking struct{ starved }

func (c *ticking) AfterFunc(d time.Duration, f func()) clock.Timer { return c.Clock.AfterFunc(d, f) }

type neverFires struct{}

func (neverFires) Stop() bool { return true }

func (neverFires) Reset(time.Duration) bool { return true }

// connTo is the connection behind url of a client that OpenIn opens.
func connTo(url string) (driver.Conn, error) {
	o, _, err := redisconn.Parse(url)
	if err != nil {
		return nil, err
	}
	o.ConnectTimeout = 5 * time.Second
	return redisconn.New(o)
}

// A holder that waits to be told is told soon after the machine slept, though the timer slept with it.
func TestHolderIsToldAfterASleep(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	machine := &ticking{starved{Clock: clock.System}}
	dial := func(string) (driver.Conn, error) { return connTo(server.URL()) }
	client := locktest.OpenIn(t, locktest.Config(server.URL()), hook.Surroundings{Clock: machine, Dial: dial})
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	told := make(chan error, 1)
	ctx := lock.Context()
	context.AfterFunc(ctx, func() { told <- context.Cause(ctx) })
	machine.slept.Store(int64(2 * locktest.TTL))
	select {
	case err := <-told:
		if !errors.Is(err, redlatch.ErrLost) {
			t.Error(err)
		}
	case <-time.After(locktest.Patience): // before the timer of the lock's end
		t.Error("nobody said that the lock was lost")
	}
}

// Close that waits for the work under a lead ends soon after the machine slept, when the work cannot rely on it any more.
func TestCloseOfALeadAfterASleep(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	machine := &ticking{starved{Clock: clock.System}}
	dial := func(string) (driver.Conn, error) { return connTo(server.URL()) }
	client := locktest.OpenIn(t, locktest.Config(server.URL()), hook.Surroundings{Clock: machine, Dial: dial})
	leads, closing, hang := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer close(hang)
	work.Go(func() {
		client.Campaign(context.Background(), t.Name(), func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			close(closing)
			<-hang
			return nil
		})
	})
	<-leads
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	<-closing
	machine.slept.Store(int64(2 * locktest.TTL))
	select {
	case <-closed:
	case <-time.After(locktest.Patience): // before the end of the validity by the clock that slept
		t.Error("Close waits for the work")
	}
}

// A holder that looks is told the truth, whichever way it looks, though no timer
// has fired and Go's own clock stood still: the machine slept.
func TestWhoLooksFindsTheLockLost(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	looks := map[string]func(lock *redlatch.Lock, ctx context.Context) error{
		"Err":     func(lock *redlatch.Lock, _ context.Context) error { return lock.Err() },
		"Context": func(lock *redlatch.Lock, _ context.Context) error { return context.Cause(lock.Context()) },
		"ctx.Err": func(_ *redlatch.Lock, ctx context.Context) error {
			if err := ctx.Err(); !errors.Is(err, context.Canceled) {
				return err
			}
			return context.Cause(ctx)
		},
		"Done": func(_ *redlatch.Lock, ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
				return nil
			}
		},
		"derived since": func(_ *redlatch.Lock, ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
				return nil
			}
		},
		"Cause": func(_ *redlatch.Lock, ctx context.Context) error { return context.Cause(ctx) },
		"derived": func(_ *redlatch.Lock, ctx context.Context) error {
			return context.Cause(context.WithValue(ctx, ctxKey{}, 1))
		},
		"Extend": func(lock *redlatch.Lock, _ context.Context) error {
			return lock.Extend(context.Background(), time.Second)
		},
		"Unlock": func(lock *redlatch.Lock, _ context.Context) error { return lock.Unlock(context.Background()) },
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := &starved{Clock: clock.System}
			draw := func(below time.Duration) time.Duration { return below / 2 }
			dial := func(string) (driver.Conn, error) { return connTo(server.URL()) }
			client := locktest.OpenIn(t, locktest.Config(server.URL()), hook.Surroundings{Clock: machine, Draw: draw, Dial: dial})
			lock := locktest.TryLock(t, client, t.Name())
			ctx := lock.Context()
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			machine.slept.Store(int64(locktest.TTL - locktest.Patience))
			if err := errors.Join(lock.Err(), ctx.Err(), context.Cause(ctx)); err != nil {
				t.Fatalf("before the end of its TTL: %v", err)
			}
			machine.slept.Store(int64(locktest.TTL))
			if err := look(lock, ctx); !errors.Is(err, redlatch.ErrLost) || !strings.Contains(err.Error(), t.Name()) {
				t.Errorf("after its TTL: %v", err)
			}
			// Whatever was looked at first, all agree.
			if !errors.Is(lock.Err(), redlatch.ErrLost) || !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), redlatch.ErrLost) {
				t.Errorf("%v, %v, %v", lock.Err(), ctx.Err(), context.Cause(ctx))
			}
			for name, ctx := range map[string]context.Context{"its own": ctx, "a derived": derived} {
				select {
				case <-ctx.Done():
				default:
					t.Errorf("%s context's Done is not closed", name)
				}
			}
			lock.Unlock(t.Context())
			locktest.AwaitValue(t, server, t.Name(), "")
		})
	}
}
