package gocronlock

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
)

// Elector is a gocron.Elector: it leads while it holds a lock. It is safe for concurrent use.
type Elector struct {
	client  *redlatch.Client
	name    string
	options []redlatch.Option

	// turn has an element while a call uses what follows, also during its try for the lock.
	turn chan struct{}
	// lock is nil before the first that was had.
	lock   *redlatch.Lock
	closed bool
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector that leads while it holds the lock name. The lock is renewed until
// Close, or until it has been held for its MaxHold: then it is for whoever asks first.
func NewElector(client *redlatch.Client, name string, options ...redlatch.Option) *Elector {
	return &Elector{client: client, name: name, options: options, turn: make(chan struct{}, 1)}
}

var errClosed = errors.New("the elector is closed")

// IsLeader returns nil where this process leads, or leads from now on because nobody else does:
// it makes one try for the lock if it does not hold it. It waits for another call's try, or for ctx. The
// error says who leads (redlatch.ErrHeld), or why nobody can tell. gocron asks before each run of a job;
// what runs already goes on when the lock is lost.
func (e *Elector) IsLeader(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case e.closed:
		return errClosed
	case e.lock != nil && e.lock.Err() == nil:
		return nil
	}
	lock, err := e.client.TryLock(ctx, e.name, e.options...)
	if err != nil {
		return err
	}
	if e.lock != nil {
		_ = e.lock.Unlock(ctx) // it was lost; what is left of it is released
	}
	e.lock = lock
	return nil
}

// Close ends the lead, if this process has it, so that another can have it at once. It waits for a
// call of IsLeader. Shut the scheduler down first.
func (e *Elector) Close() error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.closed = true
	if e.lock == nil || e.lock.Err() != nil {
		return nil
	}
	return e.lock.Unlock(context.Background())
}
