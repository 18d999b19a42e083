package redlatch

import "fmt"

// Detach gives the lock up to the one who keeps the id that it returns: from then
// on it is not renewed, Close does not release it, and its context is done.
// Package oneshot extends and releases it by the id, here or in another process. It does not block.
//
// The error wraps ErrLost or ErrReleased when the lock was not held any more, and ErrInvalid
// where a lock ends with its client's session, as with ZooKeeper: then it is held on.
func (l *Lock) Detach() (id string, err error) {
	if err := l.Err(); err != nil {
		return "", err
	}
	if _, is := l.client.store(); is {
		return "", errNoOneShot
	}
	last, first := l.unlock(fmt.Errorf("%w: detached", ErrReleased))
	if !first {
		return "", last
	}
	l.released(l.heldFor(), nil)
	if !l.end() || !l.lease.Detach() { // released at the same time
		return "", ErrReleased
	}
	l.client.waitqueue.LetGo(&l.holder)
	return l.lease.ID(), nil
}
