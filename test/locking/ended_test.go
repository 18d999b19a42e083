package locking

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// ending runs f on a goroutine of its own and returns what ended that: "return", "Goexit"
// or the value of a panic.
func ending(f func()) string {
	how := make(chan string)
	go func() {
		returned := false
		defer func() {
			switch r := recover(); {
			case returned:
				how <- "return"
			case r == nil:
				how <- "Goexit"
			default:
				how <- fmt.Sprint(r)
			}
		}()
		f()
		returned = true
	}()
	return <-how
}

// endings are the ways in which a function of the caller's may end its goroutine.
var endings = map[string]func(){
	"on purpose": func() { panic("on purpose") },
	"Goexit":     runtime.Goexit,
}

// closes expects that Close returns, which waits for all calls.
func closes(t *testing.T, client *redlatch.Client) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- client.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("close: %v", err)
		}
	case <-time.After(locktest.Patience):
		t.Fatal("Close hangs")
	}
}

// The report of one who contends ends its goroutine: the caller behind it has the lock when
// it is free, and so has the next.
func TestReportEndsTheContender(t *testing.T) {
	t.Parallel()
	for want, end := range endings {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			for _, option := range []redlatch.Option{nil, redlatch.WithoutQueue()} {
				c := locktest.Config(redistest.URLs(locktest.Shared(t, 3))...)
				client, other := locktest.Open(t, c), locktest.Open(t, c)
				theirs := locktest.TryLock(t, other, t.Name())
				behind := make(chan (<-chan locktest.Outcome), 1)
				options := []redlatch.Option{redlatch.WithWaitReport(func(error) {
					report, waits := locktest.WhenWaiting(nil)
					behind <- locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name(), report)
					<-waits
					end()
				})}
				if option != nil {
					options = append(options, option)
				}
				if how := ending(func() { client.Lock(locktest.Within(t, locktest.Patience), t.Name(), options...) }); how != want {
					t.Errorf("the caller ended by %s", how)
				}
				locktest.Unlock(t, theirs)
				o := <-<-behind
				if o.Err != nil {
					t.Fatalf("who waited behind: %v", o.Err)
				}
				locktest.Unlock(t, o.Lock)
				lock, err := client.Lock(locktest.Within(t, locktest.Patience), t.Name())
				if err != nil {
					t.Fatalf("the next: %v", err)
				}
				locktest.Unlock(t, lock)
				closes(t, client)
			}
		})
	}
}

// The report of one who waits for this client's own lock ends its goroutine, before the lock
// comes to it or after.
func TestReportEndsTheWaiter(t *testing.T) {
	t.Parallel()
	for want, end := range endings {
		for _, came := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/came=%t", want, came), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, 3)
				client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
				first := locktest.TryLock(t, client, t.Name())
				how := ending(func() {
					client.Lock(locktest.Within(t, locktest.Patience), t.Name(), redlatch.WithWaitReport(func(error) {
						if came {
							locktest.Unlock(t, first)
						}
						end()
					}))
				})
				if how != want {
					t.Errorf("the caller ended by %s", how)
				}
				if !came {
					locktest.Unlock(t, first)
				}
				for _, s := range nodes {
					locktest.AwaitValue(t, s, t.Name(), "")
				}
				lock, err := client.Lock(locktest.Within(t, locktest.Patience), t.Name())
				if err != nil {
					t.Fatalf("the next: %v", err)
				}
				locktest.Unlock(t, lock)
				closes(t, client)
			})
		}
	}
}

// hostile is a context whose Err panics when it is called for the count-th time.
type hostile struct {
	context.Context
	count atomic.Int32
}

func (c *hostile) Err() error {
	if c.count.Add(-1) == 0 {
		panic("on purpose")
	}
	return c.Context.Err()
}

// A method of ctx panics, at whatever time: what was acquired until then is released, and
// nobody waits for the caller.
func TestContextPanics(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, c *redlatch.Client, name string){
		"Lock":         func(ctx context.Context, c *redlatch.Client, name string) { c.Lock(ctx, name) },
		"WithoutQueue": func(ctx context.Context, c *redlatch.Client, name string) { c.Lock(ctx, name, redlatch.WithoutQueue()) },
		"TryLock":      func(ctx context.Context, c *redlatch.Client, name string) { c.TryLock(ctx, name) },
		"Take": func(ctx context.Context, c *redlatch.Client, name string) {
			oneshot.New(c).Take(ctx, name, "id", 20*time.Second)
		},
	}
	for what, call := range calls {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/N=%d", what, n), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
				panics := 0
				for count := int32(1); count == int32(panics)+1; count++ {
					name := fmt.Sprintf("%s/%d", t.Name(), count)
					ctx := &hostile{Context: t.Context()}
					ctx.count.Store(count)
					if how := ending(func() { call(ctx, client, name) }); how == "return" {
						break
					}
					panics++
					for _, s := range nodes {
						locktest.AwaitValue(t, s, name, "")
					}
					lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
					if err != nil {
						t.Fatalf("after a panic of the call %d of Err: %v", count, err)
					}
					locktest.Unlock(t, lock)
				}
				if panics == 0 {
					t.Error("ctx.Err was not called")
				}
				closes(t, client)
			})
		}
	}
}

// A method of ctx panics while a step is under way that the node does not answer.
func TestContextPanicsInAStep(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 1)
	proxy := redistest.Proxies(t, nodes)[0]
	c := locktest.Config(proxy.URL())
	c.NodeTimeout = 100 * time.Millisecond
	client := locktest.Open(t, c)
	panics := 0
	for count := int32(1); count == int32(panics)+1; count++ {
		name := fmt.Sprintf("%s/%d", t.Name(), count)
		ctx := &hostile{Context: t.Context()}
		ctx.count.Store(count)
		proxy.HoldBack(redistest.Replies, true)
		how := ending(func() { client.TryLock(ctx, name) })
		proxy.HoldBack(redistest.Replies, false)
		if how == "return" {
			break
		}
		panics++
		lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
		if err != nil {
			t.Fatalf("after a panic of the call %d of Err: %v", count, err)
		}
		locktest.Unlock(t, lock)
		locktest.AwaitValue(t, nodes[0], name, "")
	}
	if panics < 2 {
		t.Errorf("ctx.Err panicked %d times", panics)
	}
	closes(t, client)
}

// What Do runs ends its goroutine: the lock is released.
func TestDoExits(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	for want, end := range endings {
		how := ending(func() {
			client.Do(t.Context(), t.Name(), func(context.Context) error { end(); return nil })
		})
		if how != want {
			t.Errorf("the caller ended by %s", how)
		}
		for _, s := range nodes {
			locktest.AwaitValue(t, s, t.Name(), "")
		}
		locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
	}
	closes(t, client)
}

// A ctx that is nil is refused, as are functions and options that are; Unlock needs none.
func TestNilArguments(t *testing.T) {
	t.Parallel()
	var none context.Context
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(redistest.URLs(nodes)...)
	client := locktest.Open(t, c)
	held := locktest.TryLock(t, client, t.Name()+"/held")
	work := func(context.Context) error { t.Error("done"); return nil }
	const ctxIsNil = "ctx is nil: pass context.Background() or the request's context"
	for what, call := range map[string]struct {
		err   func() error
		words string
	}{
		"Lock":       {func() error { return locktest.ErrorOf(client.Lock(none, t.Name())) }, ctxIsNil},
		"TryLock":    {func() error { return locktest.ErrorOf(client.TryLock(none, t.Name())) }, ctxIsNil},
		"Do":         {func() error { return client.Do(none, t.Name(), work) }, ctxIsNil},
		"Take":       {func() error { return locktest.ErrorOf(oneshot.New(client).Take(none, t.Name(), "id", time.Second)) }, ctxIsNil},
		"ExtendTake": {func() error { return locktest.ErrorOf(oneshot.New(client).Extend(none, t.Name(), "id", time.Second)) }, ctxIsNil},
		"Release":    {func() error { return locktest.ErrorOf(oneshot.New(client).Release(none, t.Name(), "id")) }, ctxIsNil},
		"Query":      {func() error { _, _, err := oneshot.New(client).Query(none, t.Name()); return err }, ctxIsNil},
		"Inspect":    {func() error { return locktest.ErrorOf(oneshot.New(client).Inspect(none, t.Name())) }, ctxIsNil},
		"Admit":      {func() error { return client.Admit(none, "n0") }, ctxIsNil},
		"Reset":      {func() error { return client.Reset(none, "n0") }, ctxIsNil},
		"Extend":     {func() error { return held.Extend(none, time.Second) }, ctxIsNil},
		"Examine":    {func() error { return locktest.ErrorOf(doctor.Examine(none, c)) }, ctxIsNil},
		"no fn":      {func() error { return client.Do(t.Context(), t.Name(), nil) }, "fn is nil"},
		"no option": {func() error {
			return locktest.ErrorOf(client.Lock(t.Context(), t.Name(), redlatch.WithTTL(time.Second), nil))
		}, "options[1] is nil"},
		"no report": {func() error {
			return locktest.ErrorOf(client.Lock(t.Context(), t.Name(), redlatch.WithWaitReport(nil)))
		}, "WithWaitReport"},
		"no permit": {func() error { return locktest.ErrorOf(client.Acquire(t.Context(), t.Name(), 0)) }, "the number of permits, k, is 0: it must be from 1 to 256"},
	} {
		var err error
		if how := ending(func() { err = call.err() }); how != "return" {
			t.Errorf("%s ended by %s", what, how)
		} else if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), call.words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if held.Err() != nil {
		t.Errorf("the lock is %v", held.Err())
	}
	if err := held.Unlock(none); err != nil {
		t.Errorf("unlock: %v", err)
	}
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
	for _, s := range nodes {
		locktest.AwaitValue(t, s, held.Name(), "")
	}
	closes(t, client)
}
