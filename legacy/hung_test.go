package legacy

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// hungConn is a connection to a server that answers nothing until resumed is closed. Its queue blocks when
// it is full, without looking at ctx, as that of redisconn does.
type hungConn struct {
	driver.Conn
	queue   chan struct{}
	resumed chan struct{}

	mu   sync.Mutex // guards sent
	sent map[string]int
}

func (c *hungConn) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	select {
	case c.queue <- struct{}{}:
	case <-c.resumed:
	}
	c.mu.Lock()
	c.sent[args[0]]++
	c.mu.Unlock()
	select {
	case <-c.resumed:
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	case <-ctx.Done():
		return driver.Reply{}, ctx.Err()
	}
}

func (c *hungConn) has(command string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent[command]
}

// However many callers a hung server has left without an answer, the next one waits no longer than others, and what it
// wanted is not sent when nobody waits for it any more: a DEL could then delete the lock of another.
func TestManyWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &hungConn{queue: make(chan struct{}, redisconn.RingSize), resumed: make(chan struct{}), sent: make(map[string]int)}
		locker := &Locker{config: Config{Timeout: time.Minute, KeyTemplate: defaultTemplate}, patience: commandTimeout, conn: conn, inFlight: make(chan struct{}, maxInFlight)}
		lock, err := newLock(t.Context(), locker, "a", "lock.a", locker.validity())
		if err != nil {
			t.Fatal(err)
		}
		const callers = 100
		for range 2*redisconn.RingSize/callers + 1 {
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					if _, err := locker.TryLock(t.Context(), "b"); !errors.Is(err, redlatch.ErrNoQuorum) {
						t.Errorf("of a server that hangs: %v", err)
					}
				})
			}
			all.Wait()
		}
		start := time.Now()
		if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || time.Since(start) > commandTimeout {
			t.Errorf("Unlock after %v: %v", time.Since(start), err)
		}
		close(conn.resumed)
		synctest.Wait()
		if n := conn.has("DEL"); n != 0 {
			t.Errorf("DEL was sent %d times", n)
		}
		if _, err := locker.TryLock(t.Context(), "b"); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}
