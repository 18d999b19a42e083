package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// workInBoth runs work while it holds the lock name in both engines. The ctx of work ends when either is
// lost, and when ctx does.
func workInBoth(ctx context.Context, before, after *redlatch.Client, name string, work func(ctx context.Context) error) error {
	return before.Do(ctx, name, func(ctx context.Context) error {
		return after.Do(ctx, name, work)
	})
}

// doInBoth runs work while it holds the lock name in both engines, with the token of the one before.
// The ctx of work ends when either is lost, and when ctx does.
func doInBoth(ctx context.Context, before, after *redlatch.Client, name string, work func(ctx context.Context, token uint64) error) (err error) {
	lock, err := before.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }()
	held, end := context.WithCancelCause(lock.Context())
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	return after.Do(held, name, func(ctx context.Context) error { return work(ctx, lock.Token()) })
}

// doIn is the same with one engine.
func doIn(ctx context.Context, client *redlatch.Client, name string, work func(ctx context.Context, token uint64) error) (err error) {
	lock, err := client.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }()
	return work(lock.Context(), lock.Token())
}

// mover is one of several programs that move from Redis to the engine.
type mover struct{ before, after *redlatch.Client }

func (e Engine) mover(t *testing.T, servers []*redistest.Server, addrs []string, root string) mover {
	t.Helper()
	before, err := redlatch.Open(redlatch.Config{Nodes: redistest.URLs(servers), TTL: TTL, NodeTimeout: time.Second, NoQuarantine: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { before.Close() })
	return mover{before, e.open(t, Config, addrs, root)}
}

// resource is what the lock protects. It notes whether two were there at once, and checks tokens.
type resource struct {
	guard    fence.Memory
	inside   atomic.Int32
	overlaps atomic.Int32
}

func (r *resource) use(ctx context.Context, token uint64) error {
	if err := r.visit(ctx); err != nil {
		return err
	}
	return r.guard.Enter(ctx, "resource", token)
}

func (r *resource) visit(context.Context) error {
	if r.inside.Add(1) != 1 {
		r.overlaps.Add(1)
	}
	defer r.inside.Add(-1)
	time.Sleep(5 * time.Millisecond)
	return nil
}

// Move has programs move from Redis to the engine one by one, in three steps, of which two
// neighbouring ones run at the same time: with the lock in Redis, in both, and in the engine.
func (e Engine) Move(t *testing.T) {
	t.Parallel()
	servers, addrs, root := redistest.Nodes(t, 3), e.Common(t), Root(t)
	movers := []mover{e.mover(t, servers, addrs, root), e.mover(t, servers, addrs, root)}
	r := new(resource)
	steps := []func(ctx context.Context, m mover, work func(ctx context.Context, token uint64) error) error{
		func(ctx context.Context, m mover, work func(context.Context, uint64) error) error {
			return doIn(ctx, m.before, "name", work)
		},
		func(ctx context.Context, m mover, work func(context.Context, uint64) error) error {
			if err := workInBoth(ctx, m.before, m.after, "name", r.visit); err != nil {
				return err
			}
			return doInBoth(ctx, m.before, m.after, "name", work)
		},
		func(ctx context.Context, m mover, work func(context.Context, uint64) error) error {
			return doIn(ctx, m.after, "name", work)
		},
	}
	for first := range 2 {
		ctx, done := Within(t, Patience), [2]atomic.Int32{}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				for range 5 {
					step := first + i%2
					err := steps[step](ctx, movers[i/3], r.use)
					// The resource has seen a token of the engine, and this one is of Redis.
					if refused := first == 1 && step == 1 && errors.Is(err, fence.ErrStale); err != nil && !refused {
						t.Errorf("step %d beside step %d: %v", step+1, 2*first+2-step, err)
						return
					}
					done[i%2].Add(1)
				}
			})
		}
		all.Wait()
		if n := r.overlaps.Load(); n > 0 {
			t.Errorf("steps %d and %d: two were there at once, %d times", first+1, first+2, n)
		}
		if done[0].Load() == 0 || done[1].Load() == 0 {
			t.Errorf("steps %d and %d: %d and %d", first+1, first+2, done[0].Load(), done[1].Load())
		}
	}
	for range 3 {
		if err := steps[2](Within(t, Patience), movers[0], r.use); err != nil {
			t.Errorf("after the move: %v", err)
		}
	}
	// Only that the steps between take both has those before and those after exclude each other.
	before, after := Lock(t, movers[0].before, "name"), Lock(t, movers[1].after, "name")
	Unlock(t, before)
	Unlock(t, after)
}

// MoveLost has one of the two locks be lost: while both are held, and while the second is waited for.
func (e Engine) MoveLost(t *testing.T) {
	t.Parallel()
	servers, addrs, root := redistest.Nodes(t, 3), e.Common(t), Root(t)
	other := e.mover(t, servers, addrs, root)
	for what, tt := range map[string]loss{
		"that in Redis, held": {
			lose: func(t *testing.T, _ []*redistest.Proxy, _ context.CancelFunc) { take(t, servers, "name") },
			err:  redlatch.ErrLost, free: func(m mover) *redlatch.Client { return m.after },
		},
		"that in the engine, held": {
			lose: func(_ *testing.T, cut []*redistest.Proxy, _ context.CancelFunc) {
				for _, p := range cut {
					p.BlackHole(redistest.Both, true)
				}
			},
			err: redlatch.ErrLost, free: func(m mover) *redlatch.Client { return m.before },
		},
		"that in Redis, waiting": {
			waits: true,
			lose:  func(t *testing.T, _ []*redistest.Proxy, _ context.CancelFunc) { take(t, servers, "name") },
			err:   redlatch.ErrLost,
		},
		"the caller gives up": {
			waits: true,
			lose:  func(_ *testing.T, _ []*redistest.Proxy, cancel context.CancelFunc) { cancel() },
			err:   context.Canceled, free: func(m mover) *redlatch.Client { return m.before },
		},
	} {
		t.Run(what, func(t *testing.T) { e.moveLost(t, tt, servers, addrs, root, other) })
	}
}

// loss is a way to lose one of the two locks.
type loss struct {
	waits bool // for the second, which another holds
	lose  func(t *testing.T, cut []*redistest.Proxy, cancel context.CancelFunc)
	err   error
	free  func(m mover) *redlatch.Client // where the lock is to be had at once
}

func (e Engine) moveLost(t *testing.T, l loss, servers []*redistest.Server, addrs []string, root string, other mover) {
	var cut []*redistest.Proxy
	var through []string
	for _, addr := range addrs {
		p := redistest.NewProxy(t, addr)
		cut, through = append(cut, p), append(through, p.Addr())
	}
	m := e.mover(t, servers, through, root)
	var second *redlatch.Lock
	if l.waits {
		second = Lock(t, other.after, "name")
	}
	ctx, cancel := context.WithCancel(Within(t, Patience))
	defer cancel()
	inside, out := make(chan struct{}), make(chan error, 1)
	go func() {
		out <- doInBoth(ctx, m.before, m.after, "name", func(ctx context.Context, _ uint64) error {
			close(inside)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	if l.waits {
		Await(t, "the first is held", func() bool { return has(t, servers, "name") })
	} else {
		select {
		case <-inside:
		case err := <-out:
			t.Fatal(err)
		}
	}
	l.lose(t, cut, cancel)
	if err := <-out; !errors.Is(err, l.err) {
		t.Errorf("%v, want %v", err, l.err)
	}
	if l.free != nil {
		Unlock(t, Lock(t, l.free(other), "name"))
	}
	if second != nil {
		Unlock(t, second)
	}
	for _, s := range servers {
		if _, err := s.Do("DEL", "name"); err != nil {
			t.Fatal(err)
		}
	}
}

// has reports whether all servers have the key.
func has(t *testing.T, servers []*redistest.Server, key string) bool {
	t.Helper()
	for _, s := range servers {
		if n, err := s.Do("EXISTS", key); err != nil || n != int64(1) {
			return false
		}
	}
	return true
}

// take has somebody else have the key on all servers.
func take(t *testing.T, servers []*redistest.Server, key string) {
	t.Helper()
	for _, s := range servers {
		if reply, err := s.Do("SET", key, "another's", "PX", fmt.Sprint(Patience.Milliseconds())); err != nil {
			t.Fatal(reply, err)
		}
	}
}
