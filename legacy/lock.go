package legacy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
)

// Lock is one acquisition of an old lock. It is safe for concurrent use.
type Lock struct {
	locker    *Locker
	name, key string

	ctx    *lockContext
	cancel context.CancelCauseFunc

	// turn has room for one token. The goroutine that has put it there may extend or release.
	turn chan struct{}

	mu sync.Mutex // guards what follows; nothing is called while it is held
	validity
	// state is nil while the lock is held; then it wraps redlatch.ErrLost or redlatch.ErrReleased.
	// It is set once.
	state error
	timer *time.Timer
}

// newLock returns the lock whose value was written. If the answer took too long, the lock is lost
// already, and newLock returns that error.
func newLock(parent context.Context, l *Locker, name, key string, v validity) (*Lock, error) {
	k := &Lock{locker: l, name: name, key: key, validity: v, turn: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(parent)
	k.ctx, k.cancel = &lockContext{Context: ctx, parent: parent, lock: k}, cancel
	k.mu.Lock()
	k.timer = time.AfterFunc(v.untilLook(), k.tick)
	k.mu.Unlock()
	if err := k.Err(); err != nil {
		return nil, err
	}
	return k, nil
}

// Name returns the name that was locked.
func (k *Lock) Name() string { return k.name }

// Until returns the time until which the lock is held unless it is released, by the local clock and
// with its monotonic reading: Timeout after it was asked for, which is up to a second before others
// take it over.
func (k *Lock) Until() time.Time { return k.end().Mono }

func (k *Lock) end() clock.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// Context returns a context that is done when the lock is released, or lost because it ran out;
// context.Cause tells which. Done and Err of it look at the clock. It has the values of the ctx that
// the lock was acquired with.
func (k *Lock) Context() context.Context { return k.ctx }

// Err returns nil while the lock is held, else an error that wraps
// redlatch.ErrLost or redlatch.ErrReleased. It asks the clocks, not the server.
func (k *Lock) Err() error {
	k.mu.Lock()
	state, over := k.state, k.over()
	k.mu.Unlock()
	if state == nil && over {
		return k.finish(k.lost("it ran out"))
	}
	return state
}

func (k *Lock) lost(why string) error {
	return fmt.Errorf("legacy: %w: %q: %s", redlatch.ErrLost, k.name, why)
}

// finish gives the lock its last state, unless it has one already, and returns that state.
func (k *Lock) finish(state error) error {
	k.mu.Lock()
	if k.state == nil {
		k.state = state
		k.timer.Stop()
	}
	state = k.state
	k.mu.Unlock()
	k.cancel(state)
	return state
}

func (k *Lock) tick() {
	if k.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == nil {
		k.timer.Reset(k.untilLook())
	}
}

// Extend makes the lock last for the locker's Timeout from now. It waits for the server's answer or
// for ctx. Old locks are not renewed in the background.
//
// Errors: redlatch.ErrLost or redlatch.ErrReleased when the lock was not held any more;
// redlatch.ErrRefused, redlatch.ErrNoQuorum, redlatch.ErrClosed or ctx's cause when the server did not
// extend it or did not answer: then the lock is held for as long as before.
func (k *Lock) Extend(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := k.enter(ctx); err != nil {
		return err
	}
	defer func() { <-k.turn }()
	if err := k.Err(); err != nil {
		return err
	}
	v := k.locker.validity()
	// While the lock has not expired, only losers of the race for it may write its value. XX: a key
	// that is gone was released by somebody.
	reply, err := k.locker.do(ctx, k.end(), "SET", k.key, v.text(), "XX")
	if lost := k.Err(); lost != nil { // it ran out before the answer came
		return lost
	}
	switch {
	case err != nil:
		return failed("extend", k.name, err)
	case reply.Text != "OK":
		return k.finish(k.lost("its key is gone"))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == nil {
		k.validity = v // tick sees it
	}
	return k.state
}

func (k *Lock) enter(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("legacy: %q: %w", k.name, context.Cause(ctx))
	}
}

// Unlock releases the lock by a DEL, unless the lock has expired: the key may then be another's,
// and stays. It waits for an Extend under way and for the server's answer, for half a second each at
// most, whether or not ctx is done. ctx only gives its values, and may be nil.
//
// Errors: redlatch.ErrLost when the lock was not held any more; redlatch.ErrReleased when it was
// released before; redlatch.ErrNoQuorum, redlatch.ErrRefused or redlatch.ErrClosed when the server did
// not delete the key or did not answer: others then wait until the lock expires.
func (k *Lock) Unlock(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background() // the lock must not stay because of it
	}
	ctx = context.WithoutCancel(ctx)
	k.turn <- struct{}{} // not for long: extending is bounded, too
	defer func() { <-k.turn }()
	if err := k.Err(); err != nil {
		return err
	}
	released := fmt.Errorf("legacy: %q: %w", k.name, redlatch.ErrReleased)
	if state := k.finish(released); !errors.Is(state, redlatch.ErrReleased) {
		return state
	}
	reply, err := k.locker.do(ctx, k.end(), "DEL", k.key)
	switch {
	case err != nil:
		return failed("unlock", k.name, err)
	case reply.Int == 0:
		return k.lost("its key was gone")
	}
	return nil
}
