package legacy

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
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

func (c *hungConn) Connections() uint64 { return 1 }

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

// openSilent returns a Locker of a server that answers nothing, and the server's listener.
func openSilent(t *testing.T) (*Locker, *net.TCPListener) {
	silent, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	locker, err := Open(Config{URL: "redis://" + silent.Addr().String(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return locker, silent
}

// A caller whose ctx ends while a hung server is being connected to leaves nothing behind that the next caller waits
// for, which is the time of a whole connecting.
func TestNextAfterConnecting(t *testing.T) {
	t.Parallel()
	locker, _ := openSilent(t)
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		if _, err := locker.TryLock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		if took := time.Since(start); took > driver.LongestUnanswered/2 {
			t.Errorf("a caller with a ctx of 50ms waited for %v", took)
		}
	}
}

// Close waits for all that asks whether a hung server has answered.
func TestCloseAfterNoAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	locker, err := Open(Config{URL: server.URL(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	if _, err := locker.TryLock(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for len(locker.inFlight) == 0 { // a busy machine may send nothing in time
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		for range 20 {
			all.Go(func() { locker.TryLock(ctx, "b") })
		}
		all.Wait()
		cancel()
	}
	for range 2 {
		all.Go(func() {
			if locker.Close(); len(locker.inFlight) > 0 {
				t.Errorf("after Close %d commands are under way", len(locker.inFlight))
			}
		})
	}
	all.Wait()
}
