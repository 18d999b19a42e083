package legacy_test

import (
	"context"
	"errors"
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

func newWorld(t *testing.T, timeout time.Duration) *world {
	t.Helper()
	w := &world{nodes: redistest.Nodes(t, 3)}
	w.old = w.nodes[0] // the old server is one of the nodes, as it well may be
	w.locker = open(t, w.old.URL(), timeout)
	var err error
	w.client, err = redlatch.Open(redlatch.Config{Nodes: redistest.URLs(w.nodes), TTL: 2 * time.Second, NodeTimeout: time.Second, NoQuarantine: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.client.Close() })
	return w
}

func (w *world) both(t *testing.T) *legacy.Pair {
	t.Helper()
	pair, err := legacy.Both(t.Context(), w.locker, w.client, "foo")
	if err != nil {
		t.Fatal(err)
	}
	return pair
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
	w := newWorld(t, 20*time.Second)
	pair := w.both(t)
	isHeld(t, open(t, w.old.URL(), 20*time.Second), "foo")
	if _, err := w.client.TryLock(t.Context(), "foo"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("the new lock is held: %v", err)
	}
	if pair.Err() != nil || pair.Context().Err() != nil || pair.New().Token() == 0 || pair.Old().Name() != "foo" {
		t.Errorf("held, it is %v", pair.Err())
	}
	if err := pair.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	if err := pair.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	await(t, "all keys are gone", func() bool { return w.keys(t) == 0 })
	if err := pair.Err(); !errors.Is(err, redlatch.ErrReleased) || !errors.Is(context.Cause(pair.Context()), redlatch.ErrReleased) {
		t.Errorf("released, it is %v", err)
	}
}

// A pair waits for whoever holds either, and leaves nothing when it gives up.
func TestBothWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20*time.Second)
	try(t, w.locker, "foo")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := legacy.Both(ctx, w.locker, w.client, "foo"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("the old one is held: %v", err)
	}
	await(t, "the new one is given back", func() bool { return w.keys(t) == 1 })
	expire(t, w.old, "lock.foo")
	pair := w.both(t)

	second := make(chan error)
	go func() {
		next, err := legacy.Both(t.Context(), open(t, w.old.URL(), 20*time.Second), w.client, "foo")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		second <- err
	}()
	if err := pair.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	await(t, "all keys are gone", func() bool { return w.keys(t) == 0 })
}

// Losing the old lock is losing both.
func TestOldOneIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3*time.Second)
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
	w := newWorld(t, 20*time.Second)
	take := func() {
		for _, s := range w.nodes {
			do(t, s, "SET", "foo", "another's", "PX", "20000")
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
	waiting := make(chan error)
	go func() {
		_, err := legacy.Both(t.Context(), w.locker, w.client, "foo")
		waiting <- err
	}()
	await(t, "the new one is held", func() bool { return w.keys(t) == 4 })
	take()
	if err := <-waiting; !errors.Is(err, redlatch.ErrLost) {
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
	w := newWorld(t, 20*time.Second)
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
