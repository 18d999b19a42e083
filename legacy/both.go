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

// Both acquires the lock name both ways, and waits until it holds both locks or ctx is done. It
// takes the new lock first, for which all programs that are moving wait in turn, and then the old
// one. All who use Both take the two in this order, and all others take only one, so no circle of
// waiting can form.
//
// The names are the same but the keys must not be: if both locks are on one server, one of the two
// needs a KeyTemplate, as the old lock has by default. The new lock is renewed in the background.
// The old one is not, so the pair lasts for the old lock's Timeout unless it is extended.
//
// Errors are those of redlatch.Client.Lock and Locker.Lock. After an error neither lock is held.
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
	// The wait for the old lock ends when the new one is lost.
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

// Old returns the old lock.
func (p *Pair) Old() *Lock { return p.old }

// New returns the lock of redlatch, which has the fencing token.
func (p *Pair) New() *redlatch.Lock { return p.new }

// Context returns a context that is done when one of the two locks is lost or released;
// context.Cause tells which.
func (p *Pair) Context() context.Context { return p.old.Context() }

// Err returns nil while both locks are held, else an error that wraps redlatch.ErrLost or
// redlatch.ErrReleased. It asks the clocks, not the servers.
func (p *Pair) Err() error {
	if err := p.new.Err(); err != nil {
		return err
	}
	return p.old.Err()
}

// Extend is Lock.Extend of the old lock. It fails when the new lock was lost.
func (p *Pair) Extend(ctx context.Context) error {
	if err := p.new.Err(); err != nil {
		return err
	}
	return p.old.Extend(ctx)
}

// Unlock releases both locks, the old one first, and the new one whatever became of the old. Its
// error joins theirs.
func (p *Pair) Unlock(ctx context.Context) error {
	return errors.Join(p.old.Unlock(ctx), p.new.Unlock(ctx))
}
