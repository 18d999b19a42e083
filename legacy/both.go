package legacy

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch"
)

// Pair is one name held both ways: nobody else holds it, neither with the old
// protocol nor with redlatch. It is safe for concurrent use.
type Pair struct {
	old *Lock
	new *redlatch.Lock
}

// Both acquires the lock name both ways, and waits until it holds it or ctx is
// done: the new one first, which everybody who moves waits for in turn, then
// the old one. All who use it take them in this order, and all others take one
// only, so that none waits for another in a circle.
//
// The names are the same and the keys must not be: give one of the two a
// KeyTemplate where both are on one server, which the defaults are. The new lock
// is renewed in the background; the old one is not, so that the pair lasts for
// the old one's Timeout unless it is extended.
//
// Errors are those of redlatch.Client.Lock and Locker.Lock. After any of them
// neither is held.
func Both(ctx context.Context, old *Locker, client *redlatch.Client, name string, options ...redlatch.Option) (*Pair, error) {
	switch {
	case ctx == nil:
		return nil, errNilContext
	case old == nil || client == nil:
		return nil, invalid("the Locker or the Client is nil: Both needs one of each")
	}
	lock, err := client.Lock(ctx, name, options...)
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // a method of ctx has panicked
			lock.Unlock(ctx)
		}
	}()
	// The wait for the old one ends when the new one is lost.
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })()
	before, err := old.lock(wait, lock.Context(), name)
	returned = true
	if err != nil {
		if unlock := lock.Unlock(ctx); unlock != nil && !errors.Is(err, redlatch.ErrLost) {
			err = fmt.Errorf("%w; %w", err, unlock)
		}
		return nil, err
	}
	return &Pair{old: before, new: lock}, nil
}

// Old and New return the two locks.
func (p *Pair) Old() *Lock { return p.old }

// New returns the lock of redlatch, which has the fencing token.
func (p *Pair) New() *redlatch.Lock { return p.new }

// Context returns a context that is done when one of the two is lost or
// released; context.Cause tells which.
func (p *Pair) Context() context.Context { return p.old.Context() }

// Err returns nil while both are held, else an error that wraps
// redlatch.ErrLost or redlatch.ErrReleased. It asks the clocks, not the servers.
func (p *Pair) Err() error {
	if err := p.new.Err(); err != nil {
		return err
	}
	return p.old.Err()
}

// Extend is that of the old lock, and fails when the new one was lost.
func (p *Pair) Extend(ctx context.Context) error {
	if err := p.new.Err(); err != nil {
		return err
	}
	return p.old.Extend(ctx)
}

// Unlock releases both, in reverse order, whatever becomes of the first. Its
// error joins theirs.
func (p *Pair) Unlock(ctx context.Context) error {
	return errors.Join(p.old.Unlock(ctx), p.new.Unlock(ctx))
}
