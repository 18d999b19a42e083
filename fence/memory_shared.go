package fence

import (
	"context"
	"fmt"
)

// EnterShared announces a reader's token at resource, see [SharedStore]. It waits until a call of [Memory.Do] that is
// running on resource has returned, and not for other readers.
func (m *Memory) EnterShared(ctx context.Context, resource string, token uint64) error {
	return m.DoShared(ctx, resource, token, func() error { return nil })
}

// DoShared is [Memory.Do] for a reader: fn runs beside those of other readers, and while no fn of Do runs on resource.
// The token counts from the moment of the call. Errors are those of Do; what a *StaleError names is then the largest
// writer's token.
func (m *Memory) DoShared(ctx context.Context, resource string, token uint64, fn func() error) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := check(resource, token); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fence: entering %q: %w", resource, context.Cause(ctx))
	}
	c, err := m.joinShared(resource, token)
	if err != nil {
		return err
	}
	defer m.leave(resource, c)

	if err := c.enterRoom(ctx); err != nil {
		return fmt.Errorf("fence: waiting for an earlier access to %q to end: %w", resource, err)
	}
	defer c.leaveRoom()

	if err := m.compareShared(resource, c, token); err != nil { // as in Do
		return err
	}
	return fn()
}

// joinShared announces the token and counts the caller in.
func (m *Memory) joinShared(resource string, token uint64) (*cell, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.cells[resource]
	if written := m.written(c); token < written {
		return nil, &StaleError{Resource: resource, Token: token, Largest: written}
	}
	c = m.add(resource, c)
	if c.room == nil {
		c.room = make(chan struct{}, 1)
	}
	c.token = max(c.token, token)
	c.users++
	return c, nil
}

// compareShared refuses a reader's token that has become too small.
func (m *Memory) compareShared(resource string, c *cell, token uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if written := m.written(c); token < written {
		return &StaleError{Resource: resource, Token: token, Largest: written}
	}
	return nil
}

// written returns the smallest reader's token that is still accepted; m.mu is held, and c may be nil.
func (m *Memory) written(c *cell) uint64 {
	// rule: resource-refuses-reader
	if c == nil {
		return m.floor
	}
	return max(c.writer, m.floor)
}

// enterRoom takes the cell's turn, unless other readers have it. The one element of room is held for as long as that
// takes, so that the readers behind wait for the turn as well, each until its own ctx is done.
func (c *cell) enterRoom(ctx context.Context) error {
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.room }()
	if c.readers == 0 {
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.readers++
	return nil
}

// leaveRoom gives the turn back when the last reader goes. It does not wait for long: with a reader inside, nobody who
// has the element of room waits for the turn.
func (c *cell) leaveRoom() {
	c.room <- struct{}{}
	if c.readers--; c.readers == 0 {
		<-c.turn
	}
	<-c.room
}
