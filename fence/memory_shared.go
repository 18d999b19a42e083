package fence

import "context"

// EnterShared announces a reader's token at resource, see [SharedStore]. It waits until a call of [Memory.Do] that is
// running on resource has returned. It does not wait for other readers.
func (m *Memory) EnterShared(ctx context.Context, resource string, token uint64) error {
	return m.DoShared(ctx, resource, token, func() error { return nil })
}

// DoShared is [Memory.Do] for a reader: fn runs beside the fns of other readers, and while no fn of Do runs on
// resource. The token counts from the moment of the call. Errors are those of Do, but a *StaleError names the largest
// writer's token.
func (m *Memory) DoShared(ctx context.Context, resource string, token uint64, fn func() error) error {
	return m.access(ctx, resource, token, true, fn)
}

// read announces a reader's token; Memory.mu is held.
func (c *cell) read(token uint64) {
	if c.room == nil {
		c.room = make(chan struct{}, 1)
	}
	c.token = max(c.token, token)
}

// enterRoom takes the cell's turn, unless other readers have it. It holds the one element of room for as long as that
// takes, so that readers behind it also wait for the turn, each until its own ctx is done.
func (c *cell) enterRoom(ctx context.Context) error {
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.room }()
	if c.readers == 0 {
		if err := c.takeTurn(ctx); err != nil {
			return err
		}
	}
	c.readers++
	return nil
}

// leaveRoom gives the turn back when the last reader goes. It does not wait for long: while a reader is inside, whoever
// has the element of room does not wait for the turn.
func (c *cell) leaveRoom() {
	c.room <- struct{}{}
	if c.readers--; c.readers == 0 {
		c.giveTurn()
	}
	<-c.room
}
