package legacy_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/legacy"
)

// world is a program that moves: an old server, and nodes for the new lock.
type world struct {
	old    *redistest.Server
	nodes  []*redistest.Server
	locker *legacy.Locker
	client *redlatch.Client
}

// newWorld has locks that last for timeout, the old ones, and ttl, the new ones.
func newWorld(t *testing.T, timeout, ttl time.Duration) *world {
	t.Helper()
	w := &world{nodes: redistest.Nodes(t, 3)}
	w.old = w.nodes[0] // the old server is one of the nodes, as it well may be
	w.locker = openFor(t, w.old.URL(), timeout)
	var err error
	w.client, err = redlatch.Open(redlatch.Config{Nodes: redistest.URLs(w.nodes), TTL: ttl, MaxTTL: time.Minute, NodeTimeout: time.Second, NoQuarantine: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.client.Close() })
	return w
}

// both takes both locks, anew where one that is short has run out meanwhile.
func (w *world) both(t *testing.T) (pair *legacy.Pair) {
	t.Helper()
	await(t, "both are held", func() bool {
		var err error
		pair, err = legacy.Both(t.Context(), w.locker, w.client, "foo")
		if err != nil && !errors.Is(err, redlatch.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
	return pair
}

// unlock releases the pair. A busy machine's nodes may not say in time that they have released the new lock.
func unlock(t *testing.T, pair *legacy.Pair) {
	t.Helper()
	if err := pair.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Error(err)
	}
}

// keys counts the lock's keys: the old one and those on the nodes.
func (w *world) keys(t *testing.T) (n int64) {
	t.Helper()
	n = do(t, w.old, "EXISTS", "lock.foo").(int64)
	for _, s := range w.nodes {
		n += do(t, s, "EXISTS", "foo").(int64)
	}
	return n
}

func TestBothExclude(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, timeout)
	pair := w.both(t)
	isHeld(t, open(t, w.old.URL()), "foo")
	await(t, "the nodes answer", func() bool { // on a busy machine they may be late
		_, err := w.client.TryLock(t.Context(), "foo")
		if !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Fatalf("the new lock is held: %v", err)
		}
		return errors.Is(err, redlatch.ErrHeld)
	})
	if pair.Err() != nil || pair.Context().Err() != nil || pair.New().Token() == 0 || pair.Old().Name() != "foo" {
		t.Errorf("held, it is %v", pair.Err())
	}
	if err := pair.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	unlock(t, pair)
	await(t, "all keys are gone", func() bool { return w.keys(t) == 0 })
	if err := pair.Err(); !errors.Is(err, redlatch.ErrReleased) || !errors.Is(context.Cause(pair.Context()), redlatch.ErrReleased) {
		t.Errorf("released, it is %v", err)
	}
}

// A pair waits for whoever holds either, and leaves nothing when it gives up.
func TestBothWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, timeout)
	try(t, w.locker, "foo")
	err := givesUp(t, w.old, func(ctx context.Context) error {
		_, err := legacy.Both(ctx, w.locker, w.client, "foo")
		return err
	})
	if !errors.Is(err, errGaveUp) || !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("the old one is held: %v", err)
	}
	await(t, "the new one is given back", func() bool { return w.keys(t) == 1 })
	expire(t, w.old, "lock.foo")
	pair := w.both(t)

	second := make(chan error)
	go func() {
		next, err := legacy.Both(t.Context(), open(t, w.old.URL()), w.client, "foo")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		second <- err
	}()
	unlock(t, pair)
	if err := <-second; err != nil {
		t.Error(err)
	}
	await(t, "all keys are gone", func() bool { return w.keys(t) == 0 })
}

// Who gives up, and cannot give back the new lock, learns that, too.
func TestBothCannotGiveBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, timeout)
	try(t, w.locker, "foo")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := legacy.Both(ctx, w.locker, w.client, "foo"); ended <- err }()
	await(t, "the new one is held", func() bool { return w.keys(t) == 4 })
	w.nodes[1].Kill()
	w.nodes[2].Kill()
	cancel(errGaveUp)
	if err := <-ended; !errors.Is(err, errGaveUp) || !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("got %v", err)
	}
}

// The old one is released while the new one is held, so that who waits for the new one finds both free.
func TestOldOneIsReleasedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, timeout)
	proxy := redistest.NewProxy(t, w.old.Addr())
	w.locker = open(t, proxy.URL())
	var held atomic.Bool
	pair := w.both(t)
	proxy.OnCommand(func(c redistest.Command) redistest.Action {
		if c.Name() == "DEL" {
			held.Store(pair.New().Err() == nil)
		}
		return redistest.Pass
	})
	unlock(t, pair)
	if !held.Load() {
		t.Error("the new one was released before")
	}
}

// Losing the old lock is losing both.
func TestOldOneIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3*time.Second, timeout)
	pair := w.both(t)
	<-pair.Context().Done()
	if err := context.Cause(pair.Context()); !errors.Is(err, redlatch.ErrLost) || !errors.Is(pair.Err(), redlatch.ErrLost) {
		t.Errorf("lost, it is %v", err)
	}
	if err := pair.Extend(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := pair.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	await(t, "the new one was released", func() bool { return w.keys(t) == 1 })
}

// Losing the new lock is losing both, also while the old one is waited for.
func TestNewOneIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, 6*time.Second) // it is renewed every 2 s
	take := func() {
		for _, s := range w.nodes {
			do(t, s, "SET", "foo", "another's", "PX", "60000")
		}
	}
	pair := w.both(t)
	take()
	<-pair.Context().Done()
	if err := pair.Err(); !errors.Is(err, redlatch.ErrLost) || !errors.Is(context.Cause(pair.Context()), redlatch.ErrLost) {
		t.Errorf("lost, it is %v", err)
	}
	if err := pair.Extend(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := pair.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	if n := w.keys(t); n != 3 {
		t.Errorf("%d keys are left: the old one must be gone and the other's not", n)
	}

	for _, s := range w.nodes {
		do(t, s, "DEL", "foo")
	}
	try(t, w.locker, "foo")
	var waiting chan error
	await(t, "the new one is held", func() bool {
		if waiting == nil || len(waiting) > 0 { // it has run out on a busy machine
			waiting = make(chan error, 1)
			go func(ended chan<- error) {
				_, err := legacy.Both(t.Context(), w.locker, w.client, "foo")
				ended <- err
			}(waiting)
		}
		return w.keys(t) == 4
	})
	take()
	if err := <-waiting; !errors.Is(err, redlatch.ErrLost) || errors.Is(err, context.Canceled) || strings.Count(err.Error(), redlatch.ErrLost.Error()) != 1 {
		t.Errorf("lost while waiting: %v", err)
	}
}

// breaking is a context that breaks as soon as the client holds a lock.
type breaking struct {
	context.Context
	client *redlatch.Client
}

func (b breaking) Done() <-chan struct{} {
	if b.client.Stats().Held > 0 {
		panic("broken")
	}
	return b.Context.Done()
}

// A ctx that panics leaves neither lock behind.
func TestBothWithABrokenContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, timeout)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		legacy.Both(breaking{t.Context(), w.client}, w.locker, w.client, "foo")
	}()
	if held := w.client.Stats().Held; held != 0 {
		t.Errorf("%d locks are held by nobody", held)
	}
}
