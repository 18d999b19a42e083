package fence

import (
	"context"
	"fmt"
	"sync"
)

// Memory guards resources that live and die with this process, such as a cache, a device or a test's fake. The zero
// value is ready. It is safe for concurrent use and must not be copied after first use.
//
// It forgets everything when the process ends, so what it guards has to end then too: a file or a row that outlives
// the process needs [Table], [Column] or [Redis].
//
// Memory keeps the name and token of every resource it has seen, until [Memory.Forget] or [Memory.Prune].
type Memory struct {
	mu    sync.Mutex       // guards all fields, and the cells' tokens and users; held for a few map operations only, never while fn runs
	cells map[string]*cell // a cell is here while it has a token or users
	floor uint64           // tokens below it are refused everywhere; never falls
}

// cell is one resource.
type cell struct {
	token   uint64        // the largest announced, 0 if none; guarded by Memory.mu
	writer  uint64        // the largest announced by Do; guarded by Memory.mu
	users   int           // the calls of Do and DoShared between entry and return, which keep the cell in the map; guarded by Memory.mu
	turn    chan struct{} // holds one element while a call of Do, or any number of DoShared, have their turn
	room    chan struct{} // holds one element while a reader comes or goes; made for the first reader, while Memory.mu is held
	readers int           // the calls of DoShared that share the turn; guarded by the element of room
}

// Enter announces token at resource. It is [Memory.Do] with nothing to do: in particular it waits until a call of Do
// that is running on resource has returned, so that what an earlier holder was still writing is there to be read.
func (m *Memory) Enter(ctx context.Context, resource string, token uint64) error {
	return m.Do(ctx, resource, token, func() error { return nil })
}

// Do announces token at resource, waits for its turn there and runs fn. No other fn runs on resource meanwhile, so
// nobody changes what fn reads before fn writes. It returns fn's error as it is.
//
// The token counts from the moment of the call, before the wait: from then on smaller ones are refused, even if Do
// later returns an error. While it waits, Do can itself be overtaken by a larger token, and is then refused.
//
// Do blocks while another fn runs on resource, first come first served, until ctx is done; the error then wraps
// context.Cause(ctx), and fn has not run. ctx is not looked at while fn runs. A fn that enters its own resource again
// waits for itself. Other errors: a *StaleError ([ErrStale]) or [ErrInvalid], and fn has not run.
func (m *Memory) Do(ctx context.Context, resource string, token uint64, fn func() error) error {
	return m.access(ctx, resource, token, false, fn)
}

// access is Do, or DoShared for a reader.
func (m *Memory) access(ctx context.Context, resource string, token uint64, reads bool, fn func() error) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := check(resource, token); err != nil {
		return err
	}
	if fn == nil {
		return fmt.Errorf("%w: fn is nil: pass the function to run, or use Enter", ErrInvalid)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fence: entering %q: %w", resource, context.Cause(ctx))
	}
	c, err := m.join(resource, token, reads)
	if err != nil {
		return err
	}
	defer m.leave(resource, c)

	enter, leave := c.takeTurn, c.giveTurn
	if reads {
		enter, leave = c.enterRoom, c.leaveRoom
	}
	if err := enter(ctx); err != nil {
		return fmt.Errorf("fence: waiting for an earlier access to %q to end: %w", resource, err)
	}
	defer leave()

	// A larger token may have been announced while this call waited. Its holder waits behind us, so it would see our
	// write; but from that moment on the guard has promised to refuse us.
	if err := m.compare(resource, c, token, reads); err != nil {
		return err
	}
	return fn()
}

// join announces the token and counts the caller in.
func (m *Memory) join(resource string, token uint64, reads bool) (*cell, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.cells[resource]
	if least := m.least(c, reads); token < least {
		return nil, &StaleError{Resource: resource, Token: token, Largest: least}
	}
	c = m.add(resource, c)
	if reads {
		c.read(token)
	} else {
		c.token, c.writer = token, token
	}
	c.users++
	return c, nil
}

// add makes the cell of a resource that has none; m.mu is held.
func (m *Memory) add(resource string, c *cell) *cell {
	if c != nil {
		return c
	}
	if m.cells == nil {
		m.cells = make(map[string]*cell)
	}
	c = &cell{turn: make(chan struct{}, 1)}
	m.cells[resource] = c
	return c
}

// compare refuses a token that has become too small.
func (m *Memory) compare(resource string, c *cell, token uint64, reads bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if least := m.least(c, reads); token < least {
		return &StaleError{Resource: resource, Token: token, Largest: least}
	}
	return nil
}

// takeTurn waits for the cell's turn.
func (c *cell) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *cell) giveTurn() { <-c.turn }

// leave counts the caller out. A cell that was forgotten meanwhile goes with its last user, not before: a second cell
// for the same resource would let two fns run at once.
func (m *Memory) leave(resource string, c *cell) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.users--
	m.drop(resource, c)
}

// least returns the smallest token that is still accepted; m.mu is held, and c may be nil.
func (m *Memory) least(c *cell, reads bool) uint64 {
	switch {
	case c == nil:
		return m.floor
	case reads:
		// rule: resource-refuses-reader
		return max(c.writer, m.floor)
	default:
		// rule: resource-refuses-smaller
		return max(c.token, m.floor)
	}
}

// drop removes a cell that has no users and says no more than no cell would; m.mu is held.
func (m *Memory) drop(resource string, c *cell) {
	if c.users == 0 && (c.token == 0 || c.token < m.floor) {
		delete(m.cells, resource)
	}
}

// Largest returns the largest token announced at resource, 0 if none is remembered.
func (m *Memory) Largest(resource string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.cells[resource]; c != nil {
		return c.token
	}
	return 0
}

// Len returns the number of resources remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.cells)
}

// Forget drops what is known of resource. A guard that has forgotten accepts the old holder, so call it only when the
// resource itself is gone for good. To bound the memory of a guard whose resources live on, use [Memory.Prune].
func (m *Memory) Forget(resource string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.cells[resource]; c != nil {
		c.token, c.writer = 0, 0
		m.drop(resource, c)
	}
}

// Prune drops every resource whose largest token is below floor, and refuses tokens below floor at all resources from
// now on. So nothing that was refused before is accepted after it. A floor that is not larger than an earlier one
// changes nothing. The error is [ErrInvalid], for a floor that is no token.
//
// Redlatch's tokens on Redis are about microseconds since 1970, so that
//
//	m.Prune(uint64(time.Now().Add(-24 * time.Hour).UnixMicro()))
//
// run every hour bounds the memory to the resources of the last day, at the price that a holder which has had its lock
// for more than a day is refused. Tokens on ZooKeeper and etcd do not go with the clock: there, let the floor be a token
// that a lock had a day ago.
func (m *Memory) Prune(floor uint64) error {
	if err := checkToken(floor); err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if floor <= m.floor {
		return nil
	}
	m.floor = floor
	for resource, c := range m.cells {
		m.drop(resource, c)
	}
	return nil
}
