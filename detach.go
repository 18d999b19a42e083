package redlatch

import "fmt"

// Detach gives the lock up to the one who keeps the id that it returns: from then
// on it is not renewed, Close does not release it, and its context is done.
// Package oneshot extends and releases it by the id, here or in another process. It does not block.
//
// The error wraps ErrLost or ErrReleased when the lock was not held any more, and ErrInvalid for a lock
// of several names, of a reader and for a permit: then it is held on.
func (l *Lock) Detach() (id string, err error) {
	if err := l.Err(); err != nil {
		return "", err
	}
	if l.call.several != nil {
		return "", invalid("the lock has several names, and package oneshot extends and releases one at a time: lock them one by one to detach them")
	}
	if l.call.settings.shared {
		return "", invalid("the lock is a reader's, and package oneshot has none: use Lock for one that is to be detached")
	}
	if l.call.permits != nil {
		return "", invalid("it is a permit, and package oneshot extends and releases locks: use Lock to detach one")
	}
	last, first := l.unlock(fmt.Errorf("%w: detached", ErrReleased))
	if !first {
		return "", last
	}
	l.released(l.heldFor(), nil)
	if !l.end() || !l.lease.Detach() { // released at the same time
		return "", ErrReleased
	}
	if s, is := l.client.store(); is {
		s.Detach(l.call.key, l.lease.ID())
	}
	l.client.waitqueue.LetGo(&l.holder)
	return l.lease.ID(), nil
}
