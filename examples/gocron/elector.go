package gocronlock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/redlatch/redlatch"
)

// Elector is a gocron.Elector: it leads while it holds a lock. It is safe for concurrent use.
type Elector struct {
	client  *redlatch.Client
	name    string
	options []redlatch.Option

	mu sync.Mutex // guards what follows; it is held across a try for the lock
	// lock is nil before the first that was had.
	lock   *redlatch.Lock
	closed bool
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector that leads while it holds the lock name. The lock is renewed until
// Close, or until it has been held for its MaxHold: then it is for whoever asks first.
func NewElector(client *redlatch.Client, name string, options ...redlatch.Option) *Elector {
	return &Elector{client: client, name: name, options: options}
}

var errClosed = errors.New("the elector is closed")

// IsLeader returns nil where this process leads, or leads from now on because nobody else does:
// it makes one try for the lock if it does not hold it. The error says who leads
// (redlatch.ErrHeld), or why nobody can tell. gocron asks before each run of a job; what
// runs already goes on when the lock is lost.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
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

// Close ends the lead, if this process has it, so that another can have it at once. Shut the
// scheduler down first.
func (e *Elector) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.lock == nil || e.lock.Err() != nil {
		return nil
	}
	return e.lock.Unlock(context.Background())
}
