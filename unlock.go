package redlatch

import (
	"context"
	"errors"
)

// Unlock releases the lock, or transfers it to the next caller who waits for it. It waits
// until a quorum of nodes has deleted its keys or cannot any more, NodeTimeout
// at most. ctx is not used, and may be nil. Keys on nodes
// that did not answer are deleted in the background, or expire with their TTL.
//
// If the next caller of this client holds the lock by the same attempt (package
// documentation, "Waiting"), no node is asked. Then Unlock does not notice that somebody
// has deleted the lock.
//
// If another client waits, only the node that keeps the wait queue is asked. The client
// that it wakes up replaces the keys on the other nodes; what it does not replace is
// deleted in the background after half a second, or when this client is closed.
//
// Before the end of WithMinHold nothing is deleted yet: Unlock returns, and the lock is
// released when that is over.
//
// Errors: ErrLost when the lock was no longer ours, though what was left of it
// is released; ErrReleased when it was released before; ErrNoQuorum in a
// *QuorumError when too few nodes answered, or ErrRefused when too many refused: it is
// not held then, but others may have to wait for the TTL.
func (l *Lock) Unlock(ctx context.Context) error {
	_ = ctx
	if l.client.enterWith(l) == nil {
		defer l.client.calls.Done()
	}
	return l.release()
}

// release ends the lock, whatever it was, and deletes its keys, unless it is to be kept
// for what is left of WithMinHold.
func (l *Lock) release() (err error) {
	before := l.Err()
	last, first := l.unlock(ErrReleased)
	if !first {
		before = last
	}
	held := l.heldFor()
	if !errors.Is(before, ErrLost) && l.minHoldLeft() > 0 {
		err = l.keep(first, before)
	} else {
		err = l.drop(before, before == nil)
	}
	if first {
		l.released(held, err)
	}
	return err
}
